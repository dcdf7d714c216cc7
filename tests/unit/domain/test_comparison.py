from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from service.domain.comparison import Arm, Comparison, compare
from service.domain.errors import UsageError
from service.domain.measurement import Conditions
from service.domain.reasons import RULES, Reason
from service.domain.speculation import Speculation
from tests.unit.domain.arms import BASE, DAY, OFF, SLOWER, arm, phase, request, speeds, verdict


def test_verdict_is_that_of_the_first_phase_and_disagreement_is_told() -> None:
    base = arm([speeds(BASE), speeds(BASE, 8)])
    found = compare(base, arm([speeds(SLOWER), speeds(BASE, 8)]))
    assert [(p.concurrency, p.verdict) for p in found.bench_phases] == [(1, "worse"), (8, "no_difference_shown")]
    assert found.verdict == "worse"
    assert any("disagree" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"host": "llm-one"}, "the host differs: llm-two and llm-one"),
        ({"gpus": ["GPU-a", "GPU-c"]}, "the GPUs differ: GPU-a, GPU-b and GPU-a, GPU-c"),
        ({"gpus": ["GPU-a"]}, "the GPUs differ: GPU-a, GPU-b and GPU-a"),
        ({"served_model": "other"}, "the served model differs: kimi and other"),
        ({"driver": "595.2"}, "the driver differs: 590.1 and 595.2"),
        ({"bench_hash": "b2", "spec": {"bench": {"max_tokens": 9, "repeat": 2}}}, "the benchmark differs: bench.max_tokens None and 9"),
        ({"bench_hash": "b2"}, "the benchmark differs: other prompts, limits or client version"),
    ],
)
def test_not_comparable(change: dict[str, Any], sentence: str) -> None:
    found = compare(arm([speeds(BASE)]), arm([speeds(SLOWER)], **change))
    assert (found.verdict, found.comparable, found.why_not) == ("not_comparable", False, [sentence])
    assert found.bench_phases[0].effect is None
    assert found.bench_phases[0].prompts[0].tps == pytest.approx([62.6, 46.4])


def test_order_of_gpus_is_no_difference() -> None:
    assert compare(arm([speeds(BASE)]), arm([speeds(SLOWER)], gpus=["GPU-b", "GPU-a"])).comparable


@pytest.mark.parametrize("key", ["gpus", "driver", "served_model", "engine_version"])
def test_unknown_is_a_warning_not_equality(key: str) -> None:
    found = compare(arm([speeds(BASE)], **{key: None}), arm([speeds(SLOWER)]))
    assert found.verdict == "worse"
    assert "baseline not known" in found.warnings[0]
    both = compare(arm([speeds(BASE)], **{key: None}), arm([speeds(SLOWER)], **{key: None}))
    assert "baseline and the candidate not known" in both.warnings[0]


def test_old_baseline_and_other_engine_version_warn() -> None:
    old = arm([speeds(BASE)])
    assert compare(old, arm([speeds(SLOWER)], measured_at=DAY + timedelta(days=14))).warnings == []
    assert "15 days old" in compare(old, arm([speeds(SLOWER)], measured_at=DAY + timedelta(days=15))).warnings[0]
    assert "20 days old" in compare(old, arm([speeds(SLOWER)]), now=datetime(2026, 11, 21, 4)).warnings[0]  # noqa: DTZ001
    assert compare(old, arm([speeds(SLOWER)], engine_version="0.33.0")).warnings == ["the engine versions differ: 0.32.0 and 0.33.0"]
    assert "not known" in compare(arm([speeds(BASE)], measured_at=None), arm([speeds(SLOWER)])).warnings[0]


def test_one_failed_request_makes_it_invalid_and_figures_stay() -> None:
    broken = phase([request("code", 46.4), request("code", None, 1, ok=False, reason=Reason.TRUNCATED_STREAM)])
    found = compare(arm([speeds(BASE)]), arm([broken]))
    assert (found.verdict, found.bench_phases[0].effect) == ("invalid", None)
    assert found.warnings[0] == "1 request of the candidate failed: truncated_stream"
    assert found.bench_phases[0].prompts[0].tps == pytest.approx([62.6, 46.4])


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (arm([speeds(SLOWER)], valid=False, invalid_reason="the server was restarted"), "the server was restarted"),
        (arm(), "has no measurement"),
        (arm([]), "has no measurement"),
        (arm([speeds(SLOWER)], []), "different bench phases"),
        (arm([speeds(SLOWER, 8), speeds(SLOWER)]), "first bench phases differ"),
        (arm([phase([request("code", None)])]), "the server reported no usage"),
        (arm([phase([request("another prompt", 50.0)])]), "the two have no prompt in common"),
    ],
)
def test_invalid(candidate: Arm, words: str) -> None:
    found = compare(arm([speeds(BASE)]), candidate)
    assert found.verdict == "invalid"
    assert words in found.warnings[0]


def test_phase_of_one_side_only_is_left_out() -> None:
    found = compare(arm([speeds(BASE), speeds(BASE, 8)]), arm([speeds(SLOWER)]))
    assert [p.concurrency for p in found.bench_phases] == [1]
    assert any("concurrency 8 was not measured" in warning for warning in found.warnings)


def speculating(accepted: int, drafts: int, completion: int = 1000) -> Speculation:
    return Speculation(
        status="on", drafts=drafts, draft_tokens=5 * drafts, accepted_tokens=accepted, draft_coverage=drafts / (completion - 1 - accepted)
    )


def test_break_even_of_the_first_story() -> None:
    """16.0 ms without; 21.6 ms at 2.33 tokens a step: a step takes 3.146 times as long."""
    base = phase([request("code", 62.6, n, tpot_s=0.016, completion_tokens=1000, speculation=OFF) for n in range(2)])
    steps = [(570, 429), (571, 428)]
    mine = phase(
        [request("code", 46.4, n, tpot_s=0.0216, completion_tokens=1000, speculation=speculating(*s)) for n, s in enumerate(steps)]
    )
    row = compare(arm([base]), arm([mine])).bench_phases[0].prompts[0]
    assert row.tpot_ms == pytest.approx([16.0, 21.6])
    assert row.tokens_per_step == pytest.approx(1998 / 857)
    assert row.step_time_ratio == pytest.approx(3.146, abs=2e-3)
    assert row.break_even_tokens_per_step == row.step_time_ratio


def test_baseline_that_speculates_too_has_steps_of_its_own() -> None:
    base = phase([request("code", 50.0, tpot_s=0.020, completion_tokens=101, speculation=speculating(50, 40, 101))])
    mine = phase([request("code", 50.0, tpot_s=0.020, completion_tokens=101, speculation=speculating(75, 20, 101))])
    row = compare(arm([base]), arm([mine])).bench_phases[0].prompts[0]
    assert row.tokens_per_step == pytest.approx(4.0)
    assert row.break_even_tokens_per_step == pytest.approx(4.0)
    assert row.step_time_ratio == pytest.approx(2.0)


def test_tokens_per_step_is_null_where_it_is_not_known() -> None:
    base = phase([request("code", 62.6, completion_tokens=1000)])
    whole = Speculation(status="on", drafts=9, accepted_tokens=9)
    unknown = [
        phase([request("code", 46.4, completion_tokens=1000)], speculation=None),
        phase([request("code", 46.4, completion_tokens=1000)], speculation=whole),
        phase([request("code", 46.4, completion_tokens=None, speculation=speculating(570, 429))], speculation=whole),
        phase([request("code", 46.4, completion_tokens=1000, speculation=Speculation(status="unknown"))], speculation=whole),
    ]
    for mine in unknown:
        row = compare(arm([base]), arm([mine])).bench_phases[0].prompts[0]
        assert (row.tokens_per_step, row.step_time_ratio, row.break_even_tokens_per_step) == (None, None, None)
    busy = phase([request("code", 46.4, completion_tokens=1000, speculation=speculating(570, 429))], 8)
    assert compare(arm([phase(base.requests, 8)]), arm([busy])).bench_phases[0].prompts[0].tokens_per_step is None


def test_without_speculation_on_either_side_there_is_nothing_to_break_even() -> None:
    mine = phase([request("code", 46.4, completion_tokens=1000)])
    row = compare(arm([mine]), arm([mine])).bench_phases[0].prompts[0]
    assert (row.tokens_per_step, row.step_time_ratio, row.break_even_tokens_per_step) == (1, 1, None)


def test_speculation_that_did_nothing_is_told() -> None:
    asks = {"engine": {"speculative": {"method": "ngram"}}}
    silent = compare(arm([speeds(BASE)]), arm([speeds(BASE)], spec=asks))
    assert any("it is not active" in warning for warning in silent.warnings)
    idle = [phase(speeds(BASE).requests, speculation=Speculation(status="never_drafted"))]
    assert any("never drafted" in warning for warning in compare(arm([speeds(BASE)]), arm(idle, spec=asks)).warnings)


def test_differences_of_the_specs() -> None:
    old = {"name": "a", "priority": 1, "engine": {"model": "m", "speculative": None, "args": {"x": 1, "gone": True}, "env": {}}}
    new = {
        "name": "b",
        "baseline": 7,
        "engine": {"model": "m", "speculative": {"method": "ngram", "k": None}, "args": {"x": [2]}, "env": {}},
    }
    found = compare(arm([speeds(BASE)], spec=old), arm([speeds(BASE)], spec=new))
    assert found.spec_differences == {
        "engine.args.x": [1, [2]],
        "engine.args.gone": [True, None],
        "engine.speculative.method": [None, "ngram"],
    }


def test_json_has_the_agreed_keys_and_reads_back() -> None:
    found = compare(arm([speeds(BASE), speeds(BASE, 8)]), arm([speeds(SLOWER), speeds(SLOWER, 8)], experiment=2))
    plain = json.loads(found.model_dump_json(by_alias=True))
    assert plain["schema"] == "expctl.comparison/1"
    assert {"baseline", "candidate", "comparable", "why_not", "verdict", "bench_phases", "spec_differences", "warnings"} < plain.keys()
    first = plain["bench_phases"][0]
    assert {"concurrency", "effect", "prompts", "speculation"} < first.keys()
    assert first["effect"].keys() == {"tps_ratio", "ci95", "smallest_detectable", "between_load_sd"}
    assert first["effect"]["between_load_sd"] == {"value": 0.015, "from": "assumed", "n": 0}
    assert first["speculation"].keys() == {"baseline", "candidate"}
    row = {"prompt", "tps", "tps_change", "ttft_ms", "tpot_ms", "tokens_per_step", "step_time_ratio", "break_even_tokens_per_step"}
    assert row < first["prompts"][0].keys()
    assert first["output_tps"] == [50, 50]
    assert Comparison.model_validate(plain) == found


def test_condition_without_an_effect_or_with_wrong_syntax() -> None:
    from service.domain.comparison import fails  # noqa: PLC0415

    with pytest.raises(UsageError):
        fails("ttft<3", verdict(BASE, SLOWER))
    assert fails("tps<-90%", compare(arm([speeds(BASE)]), arm([speeds(BASE)], host="other")))


def conditioned(**more: Any) -> Any:
    one = speeds(BASE)
    return one.model_copy(update={"summary": one.summary.model_copy(update={"conditions": Conditions(**more)})})


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"foreign_tokens": 900, "warnings": ["other_requests_seen"]}, "served somebody else too (900 tokens that were not ours)"),
        ({"busy_at_start": True, "warnings": ["busy_at_start"]}, "was busy before the first request"),
        (
            {"prefix_cache_hit_rate": 0.8, "warnings": ["prefix_cache_hits"]},
            "the candidate at concurrency 1: 80 % of the prompts' tokens came from the prefix cache",
        ),
    ],
)
def test_unfair_conditions_are_told(more: dict[str, Any], says: str) -> None:
    found = compare(arm([speeds(BASE)]), arm([conditioned(**more)], experiment=2))
    assert any(says in warning for warning in found.warnings)
    fair = compare(arm([conditioned()]), arm([conditioned(prefix_cache_hit_rate=0.0)], experiment=2))
    assert not any("the candidate at" in warning for warning in fair.warnings)


def test_a_phase_that_two_servers_served_is_invalid() -> None:
    one = speeds(BASE)
    summary = one.summary.model_copy(update={"valid": False, "invalid_reason": Reason.SERVER_RESTARTED_DURING_RUN})
    found = compare(arm([speeds(BASE)]), arm([one.model_copy(update={"summary": summary})], experiment=2))
    assert found.verdict == "invalid"
    assert RULES[Reason.SERVER_RESTARTED_DURING_RUN].sentence in " ".join(found.warnings)


def test_a_bad_second_look_at_the_baseline_is_a_fault_too() -> None:
    broken = phase([request("code", None, ok=False, reason=Reason.ENGINE_DEAD), request("maths", 78.0)])
    found = compare(arm([speeds(BASE)], recheck=[[broken]]), arm([speeds(BASE)], experiment=2))
    assert found.verdict == "invalid"


def lengths(method: str, family: str | None, coverage: float | None = None, **more: Any) -> Any:
    spec = {"engine": {"kind": "vllm", "speculative": {"method": method}}}
    shown = Speculation(status="on", drafts=10, mean_acceptance_length=2.3, draft_coverage=coverage)
    one = speeds(BASE).model_copy(update={"speculation": shown})
    return arm([one], spec=spec, ngram_family=family, **more)


def test_acceptance_lengths_are_compared_only_where_they_mean_the_same() -> None:
    same = compare(lengths("ngram", "numba"), lengths("ngram", "legacy", experiment=2))
    assert same.bench_phases[0].acceptance_not_comparable is None
    assert not any("acceptance" in warning for warning in same.warnings)
    other = compare(lengths("ngram", "numba", 0.6), lengths("ngram", "gpu_v2", 1.0, experiment=2))
    assert other.bench_phases[0].acceptance_not_comparable == "the baseline's counts steps with a match, the candidate's every step"
    assert any("effective tokens per step do" in warning for warning in other.warnings)
    assert other.verdict == same.verdict, "speed compares all the same"
