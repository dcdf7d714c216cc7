"""The words of messages: from facts alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from service.domain import experiment_messages, host_messages
from service.domain.comparison import Arm, compare
from service.domain.digest import NightFacts, digest
from service.domain.experiment_messages import ExperimentFacts
from service.domain.figures import span
from service.domain.host_messages import HitExperiment, HostFacts
from service.domain.measurement import Distribution, PhaseResult, PhaseSummary
from service.domain.messages import SELECTABLE, Message, MessageType, wanted
from service.domain.reasons import RULES, Reason
from service.domain.speculation import Speculation
from service.domain.status import Outcome
from tests.unit.domain import arms

AT = datetime(2026, 11, 30, 6, tzinfo=UTC)
BASE = ExperimentFacts(id=42, name="eagle3 k=3", host="gpu-01", created_by="ann", seconds=3300.0, outcome=Outcome.SUCCEEDED)


def phase(tps: float | None, length: float | None = None, status: str = "on") -> PhaseResult:
    none, one = Distribution(), Distribution(mean=tps, p50=6.1)
    summary = PhaseSummary(
        requests=1, failed=0, valid=True, duration_s=1.0, output_tokens=1, output_tps=2604.0, ttft_ms=none, tpot_ms=none, itl_ms=one,
        e2e_ms=none, tps=one,
    )  # fmt: skip
    speculation = Speculation.model_validate({"status": status, "mean_acceptance_length": length})
    return PhaseResult(concurrency=1, requests=[], summary=summary, speculation=speculation)


def arm(number: int, *, tps: float, **more: str) -> Arm:
    return arms.arm([arms.speeds({"code": [tps, tps + 0.4], "maths": [tps + 10, tps + 10.4]})], experiment=number, **more)


def facts_of(message: Message) -> dict[str, str]:
    return {fact.name: fact.value for fact in message.facts}


def test_finished_with_a_verdict() -> None:
    comparison = compare(arm(41, tps=60.0), arm(42, tps=80.0))
    told = experiment_messages.finished(replace(BASE, comparison=comparison, phases=[phase(80.0, 2.41)], next=(43, "k=5")), AT)
    assert (told.tone, told.icon, told.headline.split(": ")[0]) == ("good", "✅", "42 eagle3 k=3")
    assert told.headline.endswith(" % tok/s vs 41")
    assert facts_of(told) == {
        "Decode speed": "80.0 tok/s",
        "Together": "2 604 tok/s",
        "ITL p50": "6.1 ms",
        "Accepted length": "2.41",
        "Time": "55 min on gpu-01",
    }
    assert told.lines == ["Next on gpu-01: 43 k=5"]
    assert [link.path for link in told.links] == ["/e/42", "/compare?base=41&ids=42"]


@pytest.mark.parametrize(
    ("base", "candidate", "words", "tone"),
    [
        (80.0, 60.0, " % tok/s vs 1", "warning"),
        (60.0, 60.1, "no difference shown vs 1 (", "good"),
    ],
)
def test_no_win_is_claimed_that_is_not_shown(base: float, candidate: float, words: str, tone: str) -> None:
    comparison = compare(arm(1, tps=base), arm(2, tps=candidate))
    told = experiment_messages.finished(replace(BASE, comparison=comparison), AT)
    assert words in told.headline
    assert told.tone == tone


def test_what_cannot_be_compared_says_why() -> None:
    comparison = compare(arm(1, tps=60.0), arm(2, tps=80.0, host="elsewhere"))
    told = experiment_messages.finished(replace(BASE, comparison=comparison), AT)
    assert told.headline == "42 eagle3 k=3: not comparable with 1"
    assert told.lines[0].startswith("Not comparable: the host differs: ")


def test_what_is_not_known_is_left_out_and_never_0() -> None:
    told = experiment_messages.finished(replace(BASE, seconds=None, phases=[phase(None, None, "off")]), AT)
    assert facts_of(told) == {"Together": "2 604 tok/s", "ITL p50": "6.1 ms", "Time": "not known on gpu-01"}
    assert told.headline == "42 eagle3 k=3: 2 604 tok/s"
    assert told.data["numbers"]["tps"] is None
    assert experiment_messages.finished(BASE, AT).headline == "42 eagle3 k=3: done"


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_of_a_failure_has_words(reason: Reason) -> None:
    told = experiment_messages.failed(replace(BASE, outcome=RULES[reason].outcome, reason=reason, step="load", detail="as seen"), AT)
    assert RULES[reason].sentence in told.headline
    assert told.lines[:2] == ["as seen", f"To do: {RULES[reason].remedy}"]


def test_failed_says_where_after_how_long_and_what_the_log_said_last() -> None:
    lines = [f"line {number}" for number in range(9)]
    lost = replace(BASE, outcome=Outcome.FAILED, reason=Reason.NCCL_INIT_ERROR, step="load", seconds=360.0, attempt=3, last_lines=lines)
    told = experiment_messages.failed(replace(lost, shut="it is paused"), AT)
    assert told.headline == "42 eagle3 k=3: failed in load, the GPUs could not join for collective communication"
    assert facts_of(told)["When"] == "After 6 min, attempt 3 of 3"
    assert told.code == "line 4\nline 5\nline 6\nline 7\nline 8"
    assert told.lines[-1] == "gpu-01 starts nothing more: it is paused"
    assert told.commands == ["expctl logs 42", "expctl retry 42"]
    early = experiment_messages.failed(replace(lost, seconds=None, reason=Reason.DEPENDENCY_FAILED, step=None), AT)
    assert (facts_of(early)["When"], early.commands) == ("before it started", ["expctl retry 42"])


def test_an_outage_that_met_many_names_some_and_counts_the_rest() -> None:
    hit = [HitExperiment(number, f"n{number}", "Loading") for number in range(12)]
    told = host_messages.unreachable(HostFacts("gpu-01", hit, 1, "production is parked", needs_person=True), AT, "no route")
    assert told.headline == "gpu-01 does not answer: hit 0 n0, 1 n1, 2 n2 and 9 more"
    assert "7 n7 (Loading) and 4 more." in told.lines[1]
    assert told.lines[2:4] == ["1 experiment waits there.", "gpu-01: production is parked. A person should look."]
    assert host_messages.unreachable(HostFacts("gpu-01"), AT, "").lines[0] == "No experiment ran there."


def test_production_that_came_back_oddly_is_no_plain_good_news() -> None:
    units = {"units": ["a.service"], "away_s": 60.0, "after_s": 5.0}
    plain = host_messages.restored(HostFacts("gpu-01"), AT, units | {"proof": {"a.service": "one token"}})
    assert (plain.tone, facts_of(plain)["Proof of a.service"], plain.lines) == ("good", "one token", [])
    odd = host_messages.restored(HostFacts("gpu-01"), AT, units | {"changed": ["a.service"], "given_back_by_host": "the dead-man fired"})
    assert odd.tone == "warning"
    assert odd.lines == [
        "Changed meanwhile: a.service.",
        "The host did it by itself: the dead-man fired",
        "What proves it was not recorded.",
    ]


def test_a_night_ranked_with_failures_by_cause() -> None:
    def ended(number: int, tps: float, base: float | None) -> ExperimentFacts:
        comparison = compare(arm(1, tps=base), arm(number, tps=tps)) if base is not None else None
        return replace(BASE, id=number, name=f"n{number} " + "x" * 40, comparison=comparison, phases=[phase(tps)])

    lost = [replace(BASE, id=number, outcome=Outcome.FAILED, reason=Reason.ENGINE_DEAD) for number in (7, 8)]
    lost.append(replace(BASE, id=9, outcome=Outcome.INVALID, reason=Reason.EMPTY_OUTPUT))
    done = [ended(1, 60.0, None), ended(2, 60.1, 60.0), ended(3, 90.0, 60.0), ended(4, 40.0, 60.0)]
    night = NightFacts(
        ["gpu-01", "gpu-02"], "30 Nov", AT, [*done, *lost], gpu_s=24_000.0, gpus_unknown=1, loads=7, waiting=2,
        production=[("gpu-01", "a.service serves again", True), ("gpu-02", "b.service is NOT RESTORED", False)],
    )  # fmt: skip
    told = digest(night, AT)
    assert told.headline == "Night of 30 Nov: 4 done, 2 failed, 1 invalid, 6 h 40 min GPU time, PRODUCTION NOT PROVEN"
    assert [line.split()[0] for line in told.code.splitlines()] == ["ID", "3", "2", "4", "1"]
    assert told.lines[0].startswith("Best: 3 n3 ")
    assert told.lines[1:] == [
        "2 because the engine died: 7, 8.",
        "1 because an answer had no output: 9.",
        "gpu-01: a.service serves again.",
        "gpu-02: b.service is NOT RESTORED.",
        "2 experiments still wait.",
    ]
    assert facts_of(told)["GPU time"] == "6 h 40 min; how many GPUs 1 experiment had is not known"
    assert told.data["failures"] == {"engine_dead": 2, "empty_output": 1}
    assert told.tone == "bad"


def test_a_night_without_any_win_claims_none() -> None:
    done = replace(BASE, comparison=compare(arm(1, tps=60.0), arm(2, tps=60.1)))
    told = digest(NightFacts(["local"], "30 Nov", AT, [done]), AT)
    assert told.lines == ["Nothing was shown to be better than its baseline."]
    assert told.headline == "Night of 30 Nov: 1 done, GPU time not known"
    assert (told.data["gpu_hours"], told.tone) == (None, "good")


def test_what_is_told_unless_somebody_chooses() -> None:
    quiet = {MessageType.EXPERIMENT_STARTED, MessageType.WORKER_BACK}
    assert {kind for kind in SELECTABLE if not wanted([], kind)} == quiet
    assert [kind for kind in SELECTABLE if wanted(["experiment.finished"], kind)] == ["experiment.finished", "experiment.failed"]
    assert wanted(["host.blocked"], MessageType.TEST)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "not known"),
        (0.0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (3300.0, "55 min"),
        (3600.0, "1 h"),
        (24_000.0, "6 h 40 min"),
        (3599.0, "1 h"),
    ],
)
def test_spans(seconds: float | None, words: str) -> None:
    assert span(seconds) == words
