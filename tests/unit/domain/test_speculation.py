from __future__ import annotations

from typing import Any

import pytest

from service.domain.speculation import EngineCounters, Speculation, speculation_between
from service.domain.speculation_pool import merge


def counters(engine: str = "vllm", **values: Any) -> EngineCounters:
    return EngineCounters(engine=engine, **values)


def drafted(drafts: float, draft_tokens: float, accepted: float, **more: Any) -> EngineCounters:
    return counters(drafts=drafts, draft_tokens=draft_tokens, accepted_tokens=accepted, **more)


ZERO = drafted(0, 0, 0, generation_tokens=0)


def test_figures_of_the_span_not_of_the_servers_life() -> None:
    found = speculation_between(drafted(100, 300, 150), drafted(400, 1200, 550))
    assert (found.status, found.drafts, found.draft_tokens, found.accepted_tokens) == ("on", 300, 900, 400)
    assert found.mean_acceptance_length == pytest.approx(1 + 400 / 300)
    assert found.draft_acceptance_rate == pytest.approx(400 / 900)
    assert found.effective_tokens_per_step is None
    assert found.draft_coverage is None
    assert found.source == "prometheus"


def test_engines_are_summed_and_kept() -> None:
    ranks = {
        "0": {"drafts": 22.0, "draft_tokens": 110.0, "accepted_tokens": 17.0},
        "1": {"drafts": 15.0, "draft_tokens": 75.0, "accepted_tokens": 27.0},
    }
    nothing = {rank: dict.fromkeys(counts, 0.0) for rank, counts in ranks.items()}
    found = speculation_between(drafted(0, 0, 0, per_engine=nothing), drafted(37, 185, 44, per_engine=ranks))
    assert found.mean_acceptance_length == pytest.approx(2.189, abs=5e-4)
    assert found.per_engine["0"]["mean_acceptance_length"] == pytest.approx(1.773, abs=5e-4)
    assert found.per_engine["1"]["mean_acceptance_length"] == pytest.approx(2.8)


def test_idle_engine_has_null_ratios() -> None:
    busy = {"drafts": 10.0, "draft_tokens": 50.0, "accepted_tokens": 9.0}
    idle = dict.fromkeys(busy, 0.0)
    found = speculation_between(drafted(0, 0, 0, per_engine={"0": idle, "1": idle}), drafted(10, 50, 9, per_engine={"0": busy, "1": idle}))
    assert found.per_engine["1"]["mean_acceptance_length"] is None
    assert found.per_engine["1"]["drafts"] == 0


def test_one_recorded_request() -> None:
    """300 tokens of a real n-gram run: 1 by prefill, 212 accepted, so 87 decode steps, of which 50 had a draft."""
    after = drafted(50, 241, 212, generation_tokens=300, accepted_per_position=[48, 43, 41, 40, 40])
    found = speculation_between(ZERO, after, requests=1)
    assert found.effective_tokens_per_step == pytest.approx(299 / 87)
    assert found.draft_coverage == pytest.approx(50 / 87)
    assert found.mean_acceptance_length == pytest.approx(5.24)
    assert found.per_position_acceptance == pytest.approx([0.96, 0.86, 0.82, 0.8, 0.8])
    assert speculation_between(ZERO, after).effective_tokens_per_step == pytest.approx(300 / 88)


def test_accepted_tokens_behind_the_end_cannot_make_fewer_steps_than_drafts() -> None:
    found = speculation_between(ZERO, drafted(10, 50, 45, generation_tokens=52), requests=1)
    assert found.draft_coverage == 1
    assert found.effective_tokens_per_step == pytest.approx(5.1)
    assert found.warnings == ["accepted_past_the_end"]


def test_positions_that_the_first_reading_lacked_began_at_zero() -> None:
    found = speculation_between(drafted(0, 0, 0), drafted(10, 20, 9, accepted_per_position=[6, 3]))
    assert found.per_position_acceptance == pytest.approx([0.6, 0.3])


def test_status_tells_off_idle_and_unreported_apart() -> None:
    plain = counters(generation_tokens=5.0)
    assert speculation_between(plain, plain).status == "off"
    assert speculation_between(plain, plain, configured=True).warnings == ["speculation_not_active"]
    assert speculation_between(counters("sglang"), counters("sglang")).status == "not_reported"
    idle = speculation_between(ZERO, ZERO.model_copy(update={"generation_tokens": (ZERO.generation_tokens or 0) + 9}))
    assert (idle.status, idle.drafts, idle.mean_acceptance_length, idle.draft_acceptance_rate) == ("never_drafted", 0, None, None)
    assert speculation_between(ZERO, ZERO, configured=False).status == "off"
    still = speculation_between(ZERO, ZERO)
    assert (still.status, still.warnings) == ("unknown", ["nothing_generated"]), "another server's page, or requests that were refused"
    for pair in ((None, ZERO), (ZERO, None), (None, None)):
        assert speculation_between(*pair).status == "not_reported"


@pytest.mark.parametrize(
    ("before", "after", "warning"),
    [
        (drafted(10, 50, 20), drafted(5, 25, 10), "counter_reset"),
        (drafted(10, 50, 20, process_start=1.0), drafted(20, 90, 30, process_start=2.0), "counter_reset"),
        (drafted(10, 50, 20, generation_tokens=99), drafted(20, 90, 30, generation_tokens=98), "counter_reset"),
        (drafted(1, 5, 2, accepted_per_position=[2, 1]), drafted(9, 45, 9, accepted_per_position=[6, 0]), "counter_reset"),
        (drafted(10, 50, 20), counters(generation_tokens=1), "counter_reset"),
        (drafted(1, 5, 2), drafted(9, float("nan"), 9), "counter_reset"),
        (counters(generation_tokens=1), drafted(9, 45, 9, generation_tokens=2), "counters_appeared"),
        (drafted(1, 5, 2, per_engine={"0": {"drafts": 1.0}}), drafted(9, 45, 9, per_engine={"1": {"drafts": 9.0}}), "engines_changed"),
        (
            drafted(3, 15, 4, per_engine={"0": {"drafts": 2.0}, "1": {"drafts": 1.0}}),
            drafted(9, 45, 9, per_engine={"0": {"drafts": 9.0}, "1": {"drafts": 0.0}}),
            "counter_reset",
        ),
    ],
)
def test_readings_without_a_difference_are_unknown_not_zero(before: EngineCounters, after: EngineCounters, warning: str) -> None:
    found = speculation_between(before, after)
    assert (found.status, found.warnings) == ("unknown", [warning])
    assert found.drafts is None


def test_counters_without_drafts_give_the_rate_only() -> None:
    found = speculation_between(counters(draft_tokens=0, accepted_tokens=0), counters(draft_tokens=100, accepted_tokens=61))
    assert (found.status, found.draft_acceptance_rate, found.mean_acceptance_length) == ("on", 0.61, None)


def test_v0_counters_do_not_pass_for_v1() -> None:
    found = speculation_between(
        counters("vllm_v0", drafts=0, draft_tokens=0, accepted_tokens=0, generation_tokens=0),
        counters("vllm_v0", drafts=4437, draft_tokens=13311, accepted_tokens=8547, generation_tokens=10616),
    )
    assert found.draft_acceptance_rate == pytest.approx(0.642, abs=5e-4)
    assert (found.mean_acceptance_length, found.effective_tokens_per_step, found.comparable) == (None, None, False)


def test_merged_spans_are_as_one_span() -> None:
    middle = drafted(40, 200, 60, generation_tokens=150, accepted_per_position=[40, 20])
    end = drafted(100, 480, 200, generation_tokens=420, accepted_per_position=[110, 90])
    whole = speculation_between(ZERO, end, requests=5)
    merged = merge([speculation_between(ZERO, middle, requests=2), speculation_between(middle, end, requests=3)])
    assert merged is not None
    for name in ("drafts", "draft_tokens", "accepted_tokens", "mean_acceptance_length", "effective_tokens_per_step", "draft_coverage"):
        assert getattr(merged, name) == pytest.approx(getattr(whole, name)), name
    assert merged.per_position_acceptance == pytest.approx(whole.per_position_acceptance)


def test_merge_of_unlike_spans_is_unknown() -> None:
    on = speculation_between(ZERO, drafted(10, 50, 20, generation_tokens=60))
    off = Speculation(status="off")
    assert merge([]) is None
    assert merge([None, None]) is None
    assert merge([on]) is on
    assert merge([off, off]) == Speculation(status="off")
    for other in (off, None):
        found = merge([on, other])
        assert found is not None
        assert (found.status, found.warnings) == ("unknown", ["loads_differ"])
    idle = merge([on, Speculation(status="never_drafted", drafts=0)])
    assert idle is not None
    assert (idle.status, idle.drafts) == ("on", 10)


def test_readings_of_two_kinds_of_engine_have_no_difference() -> None:
    found = speculation_between(drafted(1, 3, 2), drafted(9, 30, 20).model_copy(update={"engine": "llamacpp"}))
    assert (found.status, found.mean_acceptance_length, found.warnings) == ("unknown", None, ["counter_reset"])
