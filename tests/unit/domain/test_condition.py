from __future__ import annotations

from typing import Any

import pytest

from service.domain.condition import fails, parse_condition
from service.domain.errors import UsageError


def comparison(first: float | None, second: float = 1.0) -> dict[str, Any]:
    effect = None if first is None else {"tps_ratio": first}
    return {"bench_phases": [{"concurrency": 1, "effect": effect}, {"concurrency": 8, "effect": {"tps_ratio": second}}]}


@pytest.mark.parametrize(
    ("condition", "first", "second", "expected"),
    [
        ("tps<-3%", 0.96, 1.0, True),
        ("tps<-3%", 0.97, 1.0, False),
        ("tps<=-3%", 0.97, 1.0, True),
        ("tps<-3%", 0.98, 0.5, False),
        ("tps@8<-3%", 1.0, 0.9, True),
        ("tps@1<-3%", 1.0, 0.9, False),
        ("tps@4<-3%", 1.0, 1.0, True),
        ("tps>2%", 1.03, 1.0, True),
        ("tps >= +2.5 %", 1.025, 1.0, True),
        ("tps<-3%", None, 1.0, True),
    ],
)
def test_fails(condition: str, first: float | None, second: float, expected: bool) -> None:
    assert fails(condition, comparison(first, second)) is expected


def test_nothing_measured_fails() -> None:
    assert fails("tps<-3%", {"bench_phases": []})


@pytest.mark.parametrize(
    "text", ["", "tps", "tps<-3", "tps=-3%", "ttft<3%", "tps@<3%", "tps<-3%%", "tps<-3% or so", "tps<nan%", "tps<-3%\ntps"]
)
def test_wrong_syntax_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="condition"):
        parse_condition(text)


def test_parsed() -> None:
    assert parse_condition("tps@8 < -3 %") == (8, "<", -3.0)
    assert parse_condition("tps>2%") == (None, ">", 2.0)
