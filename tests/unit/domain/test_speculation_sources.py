"""Other accounts of speculation than vLLM V1's counters: V0, SGLang's gauges, llama.cpp, log lines, the answers themselves."""

from __future__ import annotations

from typing import Any

import pytest

from service.domain.drafters import counting, incomparable
from service.domain.request_speculation import DIFFERS, of_answer, reconciled
from service.domain.speculation import EngineCounters, Speculation, speculation_between, speculation_so_far
from service.domain.speculation_log import of_log_lines


def counters(engine: str, **values: Any) -> EngineCounters:
    return EngineCounters(engine=engine, **values)


V0 = counters("vllm_v0", draft_tokens=13311, accepted_tokens=8547, emitted_tokens=10616)


def test_v0_has_a_length_from_its_emitted_tokens_where_the_drafts_length_is_known() -> None:
    found = speculation_so_far(V0, speculative_tokens=3)
    assert (found.status, found.drafts, found.source) == ("on", 4437, "prometheus")
    assert found.mean_acceptance_length == pytest.approx(2.393, abs=5e-4)
    assert found.draft_acceptance_rate == pytest.approx(0.642, abs=5e-4)
    assert (found.comparable, found.effective_tokens_per_step) == (True, None)
    assert found.warnings == ["v0_counters", "since_server_start"]


def test_v0_without_the_drafts_length_has_no_length() -> None:
    found = speculation_so_far(V0)
    assert (found.drafts, found.mean_acceptance_length, found.comparable) == (None, None, False)


def test_one_page_gives_totals_and_says_so() -> None:
    ranks = {
        "0": {"drafts": 22.0, "draft_tokens": 110.0, "accepted_tokens": 17.0},
        "1": {"drafts": 15.0, "draft_tokens": 75.0, "accepted_tokens": 27.0},
    }
    page = counters("vllm", drafts=37, draft_tokens=185, accepted_tokens=44, accepted_per_position=[30.0, 14.0], per_engine=ranks)
    found = speculation_so_far(page)
    assert (found.drafts, found.draft_tokens, found.accepted_tokens) == (37, 185, 44)
    assert found.mean_acceptance_length == pytest.approx(2.189, abs=5e-4)
    assert found.per_engine["1"]["mean_acceptance_length"] == pytest.approx(2.8)
    assert found.per_position_acceptance == pytest.approx([30 / 37, 14 / 37])
    assert found.warnings == ["since_server_start"]
    assert speculation_so_far(counters("vllm", generation_tokens=5)).status == "off"


def test_a_gauge_is_labelled_as_one_and_idle_ranks_do_not_count() -> None:
    page = counters("sglang", gauges={"0": {"accept_length": 2.465, "accept_rate": 0.293}, "1": {"accept_length": 0.0}})
    for found in (speculation_between(page, page), speculation_so_far(page)):
        assert (found.status, found.source, found.comparable) == ("on", "gauge", False)
        assert (found.mean_acceptance_length, found.draft_acceptance_rate) == (2.465, 0.293)
        assert found.per_engine["1"] == {"mean_acceptance_length": None, "draft_acceptance_rate": None}
        assert found.warnings == ["not_of_this_run", "ranks_without_data"]
    both = counters("sglang", gauges={"0": {"accept_length": 2.0}, "1": {"accept_length": 3.0}})
    assert speculation_between(both, both).mean_acceptance_length == 2.5
    assert "mean_of_ranks" in speculation_between(both, both).warnings


@pytest.mark.parametrize(
    ("configured", "status", "warnings"), [(None, "off", ["off_or_never_drafted"]), (False, "off", []), (True, "never_drafted", [])]
)
def test_series_that_are_shown_at_zero_also_when_it_is_off(configured: bool | None, status: str, warnings: list[str]) -> None:
    llama = counters("llamacpp", generation_tokens=5678, drafts=0, draft_tokens=0, accepted_tokens=0)
    found = speculation_between(llama, llama.model_copy(update={"generation_tokens": 5900}), configured=configured)
    assert (found.status, found.warnings, found.mean_acceptance_length, found.draft_acceptance_rate) == (status, warnings, None, None)
    sglang = counters("sglang", gauges={"0": {"accept_length": 0.0}})
    assert (speculation_between(sglang, sglang, configured=configured).status) == status


def test_an_engine_that_has_drafted_before_is_not_off() -> None:
    llama = counters("llamacpp", drafts=9, draft_tokens=40, accepted_tokens=3)
    assert speculation_between(llama, llama).status == "never_drafted"


def test_llamacpp_rounds_what_is_beyond_a_million() -> None:
    before = counters("llamacpp", generation_tokens=10.0, drafts=0.0, draft_tokens=0.0, accepted_tokens=0.0)
    after = counters("llamacpp", generation_tokens=9e5, drafts=1e5, draft_tokens=5e5, accepted_tokens=2e5)
    assert speculation_between(before, after).warnings == []
    far = after.model_copy(update={"generation_tokens": 1.23457e6})
    assert speculation_between(before, far).warnings == ["counters_rounded"]
    assert "counters_rounded" not in speculation_between(before, far.model_copy(update={"engine": "vllm"})).warnings


def line(accepted: int, drafted: int, length: float | None, positions: list[float] | None) -> dict[str, Any]:
    figures = {"accepted_tokens": accepted, "draft_tokens": drafted, "mean_acceptance_length": length, "per_position_acceptance": positions}
    return {**figures, "warnings": ["interval"]}


LINES = [line(262, 295, 5.44, [0.98, 0.95]), line(27, 75, 2.8, [0.53, 0.33]), line(0, 0, None, None)]


def test_log_lines_are_intervals_that_add_up() -> None:
    found = of_log_lines(LINES)
    assert found is not None
    assert (found.status, found.source, found.comparable, found.warnings) == ("on", "log", False, ["log_intervals"])
    assert (found.accepted_tokens, found.draft_tokens, found.drafts) == (289, 370, 74)
    assert found.mean_acceptance_length == pytest.approx(1 + 289 / 74, abs=0.01)
    assert found.per_position_acceptance == pytest.approx([(59 * 0.98 + 15 * 0.53) / 74, (59 * 0.95 + 15 * 0.33) / 74], abs=0.001)
    assert of_log_lines([]) is None


def test_log_lines_without_a_length_give_the_rate_only() -> None:
    found = of_log_lines([{"accepted_tokens": 66, "draft_tokens": 100, "warnings": ["interval"]}] * 2)
    assert found is not None
    assert (found.draft_acceptance_rate, found.mean_acceptance_length, found.drafts) == (0.66, None, None)


def test_of_lines_that_count_from_the_start_the_last_one_holds() -> None:
    lines = [{"accepted_tokens": n, "draft_tokens": 2 * n, "mean_acceptance_length": 1.5, "warnings": ["cumulative"]} for n in (10, 30)]
    found = of_log_lines(lines)
    assert found is not None
    assert (found.accepted_tokens, found.draft_tokens) == (30, 60)
    assert found.warnings == ["log_intervals", "cumulative"]


VLLM = {"num_spec_steps": 50, "num_accepted_draft_tokens": 90, "num_draft_tokens": 240, "acceptance_histogram": [10, 10, 20, 10]}


def test_what_vllm_says_with_the_answer() -> None:
    found = of_answer({"metrics": {"speculative_decoding": VLLM}}, 201)
    assert found is not None
    assert (found.status, found.source, found.drafts, found.draft_tokens, found.accepted_tokens) == ("on", "usage", 50, 240, 90)
    assert found.mean_acceptance_length == pytest.approx(2.8)
    assert found.per_position_acceptance == pytest.approx([0.8, 0.6, 0.2])
    assert found.effective_tokens_per_step == pytest.approx(200 / 110)
    assert found.draft_coverage == pytest.approx(50 / 110)


def test_what_sglang_and_llamacpp_say_with_the_answer() -> None:
    meta = {"completion_tokens": 106, "spec_verify_ct": 43, "spec_num_correct_drafts": 63, "spec_num_proposed_drafts": 215}
    sglang = of_answer({"meta_info": meta}, 106)
    assert sglang is not None
    assert sglang.mean_acceptance_length == pytest.approx(106 / 43)
    assert sglang.draft_acceptance_rate == pytest.approx(0.293, abs=5e-4)
    llama = of_answer({"timings": {"predicted_n": 101, "draft_n": 60, "draft_n_accepted": 40}}, 101)
    assert llama is not None
    assert (llama.status, llama.drafts, llama.mean_acceptance_length) == ("on", None, None)
    assert llama.effective_tokens_per_step == pytest.approx(100 / 60)
    assert llama.draft_acceptance_rate == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "said", [{}, {"timings": {"predicted_n": 5}}, {"metrics": {"speculative_decoding": None}}, {"meta_info": {"id": 3}}, {"metrics": 3}]
)
def test_answers_that_say_nothing_of_it(said: dict[str, Any]) -> None:
    assert of_answer(said, 5) is None


def test_nothing_drafted_in_one_answer() -> None:
    found = of_answer({"metrics": {"speculative_decoding": {**VLLM, "num_spec_steps": 0, "num_draft_tokens": 0}}}, 5)
    assert found is not None
    assert (found.status, found.mean_acceptance_length) == ("never_drafted", None)


def test_counters_and_answers_are_reconciled() -> None:
    told = of_answer({"metrics": {"speculative_decoding": VLLM}}, 201)
    same = Speculation(status="on", source="prometheus", drafts=50, draft_tokens=240, accepted_tokens=90)
    assert reconciled(same, told) is same
    other = reconciled(same.model_copy(update={"drafts": 51}), told)
    assert other is not None
    assert (other.drafts, other.warnings) == (51, [DIFFERS])
    unread = reconciled(Speculation(status="not_reported", warnings=["counters_not_read"]), told)
    assert unread is not None
    assert (unread.source, unread.drafts, unread.warnings) == ("usage", 50, ["counters_not_read"])
    assert reconciled(None, told) is told
    assert reconciled(same, None) is same
    assert reconciled(None, None) is None


ON = Speculation(status="on", mean_acceptance_length=2.3, draft_coverage=1.0)


@pytest.mark.parametrize(
    ("method", "family", "shown", "found"),
    [
        ("ngram", "legacy", None, "steps with a match"),
        ("ngram", "numba", None, "steps with a match"),
        ("ngram", "gpu_v2", ON, "every step"),
        ("ngram_gpu", "gpu_v1", None, "every step"),
        ("ngram", None, ON, None),
        ("ngram", None, ON.model_copy(update={"draft_coverage": 0.6}), "steps with a match"),
        ("eagle3", None, ON, "every step"),
        ("ngram-map-k4v", None, ON, None),
        ("draft-simple,ngram-cache", None, ON, None),
        ("draft-mtp", None, ON, "every step"),
        (None, None, ON, None),
    ],
)
def test_what_a_drafter_counts(method: str | None, family: str | None, shown: Speculation | None, found: str | None) -> None:
    assert counting(method, family, shown) == found


def test_lengths_are_set_side_by_side_only_where_they_mean_the_same() -> None:
    assert incomparable(ON, ON, ("every step", "every step")) is None
    assert incomparable(None, ON, (None, None)) is None
    assert incomparable(Speculation(status="off"), ON, (None, "every step")) is None
    why = incomparable(ON, ON, ("steps with a match", "every step"))
    assert why == "the baseline's counts steps with a match, the candidate's every step"
    assert incomparable(ON, ON, (None, "every step")) == "which steps the drafter counts is not known"
    gauge = ON.model_copy(update={"comparable": False, "warnings": ["not_of_this_run"]})
    assert "gauge" in (incomparable(ON, gauge, ("every step", "every step")) or "")
    assert incomparable(ON.model_copy(update={"comparable": False}), ON, ("every step", "every step")) is not None
