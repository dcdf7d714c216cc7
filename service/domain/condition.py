"""Conditions on a comparison, as `--fail-if` takes them: `tps<-3%`, `tps@8<-3%`, `tps>2%`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from service.domain.errors import UsageError

_CONDITION = re.compile(r"\s*tps\s*(?:@\s*(?P<level>\d+)\s*)?(?P<sign><=|>=|<|>)\s*(?P<percent>[+-]?\d+(?:\.\d+)?)\s*%\s*")
_SIGNS: dict[str, Callable[[float, float], bool]] = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_DIGITS = 9


def parse_condition(text: str) -> tuple[int | None, str, float]:
    """Concurrency (None: the first bench phase), comparison sign, change of tokens/s in percent. UsageError for anything else."""
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise UsageError(
            f"{text!r} is no condition",
            "a condition is a change of tokens/s in percent",
            "write tps<-3% for the first bench phase, tps@8<-3% for concurrency 8",
        )
    return int(found["level"]) if found["level"] else None, found["sign"], float(found["percent"])


def fails(condition: str, comparison: Any) -> bool:
    """Whether a comparison (the record or its JSON) meets the condition to fail on; one without an effect always does.

    The measured effect counts, whether or not its interval excludes 0.
    """
    level, sign, percent = parse_condition(condition)
    plain = comparison if isinstance(comparison, Mapping) else comparison.model_dump(mode="json", by_alias=True)
    phases = plain.get("bench_phases") or []
    chosen = phases[:1] if level is None else [phase for phase in phases if phase.get("concurrency") == level]
    effect = chosen[0].get("effect") if chosen else None
    if not effect or effect.get("tps_ratio") is None:
        return True
    # Rounded, for 0.97 - 1 is not quite -3 %.
    change = round(100 * (effect["tps_ratio"] - 1), _DIGITS)
    return _SIGNS[sign](change, percent)
