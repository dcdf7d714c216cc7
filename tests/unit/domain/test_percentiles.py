"""Percentiles of both sides of a comparison: what is pooled, what is not known, and how many values stand behind."""

from __future__ import annotations

import pytest

from service.domain.comparison import compare
from service.domain.measurement import PhaseResult
from service.domain.percentiles import percentiles
from tests.unit.domain.arms import arm, phase, request


def first_tokens(*seconds: float | None, level: int = 1) -> PhaseResult:
    return phase([request("code", 50.0, n, ttft_s=one, e2e_s=one) for n, one in enumerate(seconds)], level)


def test_loads_and_prompts_are_pooled_and_interpolated() -> None:
    both = phase([request("code", 50.0, ttft_s=0.1), request("maths", 50.0, ttft_s=0.5)])
    found = percentiles([both, first_tokens(0.3)], [first_tokens(0.4)])["ttft_ms"]
    assert found.n == [3, 1]
    assert found.p50 == pytest.approx([300, 400])
    assert found.p90 == pytest.approx([460, 400])
    assert found.p99 == pytest.approx([496, 400])


def test_what_failed_or_is_not_known_is_no_value() -> None:
    old = phase([request("code", 50.0, ttft_s=0.1), request("code", None, 1, ttft_s=9.0, ok=False)])
    new = phase([request("code", None, ttft_s=0.2)])
    found = percentiles([old], [new])
    assert (found["ttft_ms"].n, found["ttft_ms"].p99) == ([1, 1], [100, 200])
    assert (found["tpot_ms"].n, found["tpot_ms"].p50) == ([1, 0], [20, None])
    assert "e2e_ms" not in found, "neither side knows it"


def test_gaps_between_chunks_are_values_of_their_own() -> None:
    old = phase([request("code", 50.0, itl_ms=[1.0, 3.0]), request("code", 50.0, 1, itl_ms=[2.0])])
    found = percentiles([old], [phase([request("code", 50.0, itl_ms=[7.0])])])["itl_ms"]
    assert (found.n, found.p50) == ([3, 1], [2.0, 7.0])


@pytest.mark.parametrize(
    ("counts", "few"),
    [((0, 5), ["p50", "p90", "p99"]), ((9, 200), ["p90", "p99"]), ((25, 25), ["p99"]), ((100, 100), [])],
)
def test_too_few_on_either_side_are_named(counts: tuple[int, int], few: list[str]) -> None:
    old, new = ([first_tokens(*[0.1] * count)] for count in counts)
    assert percentiles(old, new)["ttft_ms"].few == few


def test_a_comparison_has_them_of_each_level_and_its_verdict_does_not_heed_them() -> None:
    base = arm([first_tokens(0.1, 0.2), first_tokens(0.3, level=8)])
    slow = arm([first_tokens(5.0, 5.0), first_tokens(0.3, level=8)], experiment=2)
    one, eight = compare(base, slow).bench_phases
    assert one.percentiles["ttft_ms"].p50 == pytest.approx([150, 5000])
    assert eight.percentiles["ttft_ms"].n == [1, 1]
    assert one.verdict == "no_difference_shown"


def test_what_the_specs_share_is_counted_and_given_where_it_is_asked_for() -> None:
    old = {
        "name": "a",
        "priority": 1,
        "engine": {"kind": "vllm", "args": {"x": 1, "y": 2}, "env": {"HF_TOKEN": "hf_abcdefghijkl"}},
        "baseline": None,
    }
    new = {"name": "b", "priority": 1, "engine": {"kind": "vllm", "args": {"x": 1, "y": 3}, "env": {"HF_TOKEN": "hf_abcdefghijkl"}}}
    load = [first_tokens(0.1)]
    found = compare(arm(load, spec=old), arm(load, spec=new, experiment=2), all_fields=True)
    assert found.spec_equal is not None
    assert found.spec_equal.keys() == {"engine.kind", "engine.args.x", "engine.env.HF_TOKEN"}
    assert found.spec_equal["engine.args.x"] == 1
    assert "hf_abc" not in found.model_dump_json()
    assert (found.equal_fields, found.spec_differences) == (3, {"engine.args.y": [2, 3]})
    plain = compare(arm(load, spec=old), arm(load, spec=new, experiment=2))
    assert (plain.equal_fields, plain.spec_equal) == (3, None)
