"""The words for what became of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from service.domain.comparison import Comparison
from service.domain.figures import change, number, span
from service.domain.measurement import PhaseResult
from service.domain.messages import Fact, Link, Message, MessageType
from service.domain.reasons import RULES, Reason
from service.domain.status import Outcome
from service.domain.wording import OF_THE_COMMAND

LOG_LINES = 5


@dataclass(frozen=True)
class ExperimentFacts:
    """What is known of one experiment at the moment it is told of."""

    id: int
    name: str
    host: str
    created_by: str
    attempt: int = 1
    step: str | None = None
    outcome: Outcome | None = None
    reason: Reason | None = None
    detail: str = ""
    seconds: float | None = None
    """From its start to its end."""
    phases: list[PhaseResult] = field(default_factory=list)
    comparison: Comparison | None = None
    not_compared: str = ""
    """Why there is no comparison although there is a baseline."""
    last_lines: list[str] = field(default_factory=list)
    next: tuple[int, str] | None = None
    """Id and name of what its host runs next."""
    shut: str = ""
    """Why its host starts nothing more just now."""

    @property
    def title(self) -> str:
        """Id and name."""
        return f"{self.id} {self.name}"


def headline_numbers(facts: ExperimentFacts) -> dict[str, float | None]:
    """The five numbers of the first bench phase; null is not known."""
    phase = facts.phases[0] if facts.phases else None
    speculation = phase.speculation if phase else None
    return {
        "tps": phase.summary.tps.mean if phase else None,
        "output_tps": phase.summary.output_tps if phase else None,
        "itl_ms_p50": phase.summary.itl_ms.p50 if phase else None,
        "ttft_ms_p50": phase.summary.ttft_ms.p50 if phase else None,
        "mean_acceptance_length": speculation.mean_acceptance_length if speculation and speculation.status == "on" else None,
    }


def verdict_words(comparison: Comparison) -> str:
    """Such as `+43.7 % tok/s vs 41`; no gain is claimed that is not shown."""
    against = f"vs {comparison.baseline}"
    effect = comparison.bench_phases[0].effect if comparison.bench_phases else None
    if comparison.verdict == "not_comparable":
        return f"not comparable with {comparison.baseline}"
    if comparison.verdict == "invalid" or effect is None:
        return f"no verdict {against}"
    if comparison.verdict == "no_difference_shown":
        return f"no difference shown {against} ({change(effect.tps_ratio)} tok/s measured)"
    return f"{change(effect.tps_ratio)} tok/s {against}"


def finished(facts: ExperimentFacts, at: datetime) -> Message:
    """An experiment that succeeded: its verdict first, then its figures, then what comes next."""
    numbers = headline_numbers(facts)
    speed = numbers["tps"] if numbers["tps"] is not None else numbers["output_tps"]
    told = verdict_words(facts.comparison) if facts.comparison else f"{number(speed)} tok/s" if speed is not None else "done"
    worse = facts.comparison is not None and facts.comparison.verdict == "worse"
    return Message(
        type=MessageType.EXPERIMENT_FINISHED,
        at=at,
        tone="warning" if worse else "good",
        icon="✅",
        headline=f"{facts.title}: {told}",
        facts=[*_figures(numbers), Fact(name="Time", value=f"{span(facts.seconds)} on {facts.host}")],
        lines=[line for line in (_doubt(facts), _goes_on(facts)) if line],
        links=_links(facts),
        data=_data(facts, numbers),
    )


def failed(facts: ExperimentFacts, at: datetime) -> Message:
    """An experiment that did not succeed: where, why, what its log said last, and what to do."""
    rule = RULES[facts.reason] if facts.reason else None
    why = rule.sentence if rule else "no reason was recorded"
    word = "invalid" if facts.outcome == Outcome.INVALID else "failed"
    where = f" in {facts.step}" if facts.step and facts.reason not in OF_THE_COMMAND else ""
    after = f"After {span(facts.seconds)}, attempt {facts.attempt}" + (f" of {max(rule.retry.times + 1, facts.attempt)}" if rule else "")
    lines = [facts.detail, f"To do: {rule.remedy}" if rule else "", _goes_on(facts)]
    return Message(
        type=MessageType.EXPERIMENT_FAILED,
        at=at,
        tone="bad",
        icon="❌",
        headline=f"{facts.title}: {word}{where}, {why}",
        facts=[Fact(name="When", value=after if facts.seconds is not None else "before it started"), Fact(name="Host", value=facts.host)],
        lines=[line for line in lines if line],
        code="\n".join(facts.last_lines[-LOG_LINES:]),
        commands=[f"expctl logs {facts.id}", f"expctl retry {facts.id}"] if facts.seconds is not None else [f"expctl retry {facts.id}"],
        links=_links(facts),
        data=_data(facts, headline_numbers(facts)),
    )


def started(facts: ExperimentFacts, at: datetime) -> Message:
    """An experiment that was taken up."""
    return Message(
        type=MessageType.EXPERIMENT_STARTED,
        at=at,
        icon="▶️",
        headline=f"{facts.title}: started on {facts.host}",
        facts=[Fact(name="Attempt", value=str(facts.attempt))],
        links=_links(facts),
        data=_data(facts, None),
    )


def stalled(
    facts: ExperimentFacts, at: datetime, silent_s: float | None, limit_s: float | None, where: str, looked_at: Mapping[str, str]
) -> Message:
    """A load without a sign of progress, told before it is given up. `looked_at`: what was found, by what was looked at."""
    limit = [f"It is given up after {span(limit_s)}."] if limit_s is not None else []
    return Message(
        type=MessageType.EXPERIMENT_STALLED,
        at=at,
        tone="warning",
        icon="⏳",
        headline=f"{facts.title}: no sign of progress for {span(silent_s)}" + (f", in {where}" if where else ""),
        facts=[Fact(name="Host", value=facts.host), Fact(name="Attempt", value=str(facts.attempt))],
        lines=[*(f"{what}: {found}" for what, found in looked_at.items()), *limit],
        code="\n".join(facts.last_lines[-LOG_LINES:]),
        commands=[f"expctl logs {facts.id}"],
        links=_links(facts),
        data=_data(facts, None) | {"silent_s": silent_s, "limit_s": limit_s},
    )


def _figures(numbers: dict[str, float | None]) -> list[Fact]:
    shown = (
        ("Decode speed", "tps", "{} tok/s", 1),
        ("Together", "output_tps", "{} tok/s", 1),
        ("ITL p50", "itl_ms_p50", "{} ms", 1),
        ("TTFT p50", "ttft_ms_p50", "{} ms", 0),
        ("Accepted length", "mean_acceptance_length", "{}", 2),
    )
    return [
        Fact(name=name, value=form.format(number(value, digits)))
        for name, key, form, digits in shown
        if (value := numbers[key]) is not None
    ]


def _doubt(facts: ExperimentFacts) -> str:
    if facts.comparison is None:
        return facts.not_compared
    if facts.comparison.why_not:
        return f"Not comparable: {'; '.join(facts.comparison.why_not)}."
    return facts.comparison.warnings[0] if facts.comparison.verdict == "invalid" and facts.comparison.warnings else ""


def _goes_on(facts: ExperimentFacts) -> str:
    if facts.shut:
        return f"{facts.host} starts nothing more: {facts.shut}"
    return f"Next on {facts.host}: {facts.next[0]} {facts.next[1]}" if facts.next else f"Nothing else waits on {facts.host}."


def _links(facts: ExperimentFacts) -> list[Link]:
    compared = [Link(text="Compare", path=f"/compare?base={facts.comparison.baseline}&ids={facts.id}")] if facts.comparison else []
    return [Link(text="Open", path=f"/e/{facts.id}"), *compared]


def _data(facts: ExperimentFacts, numbers: dict[str, float | None] | None) -> dict[str, Any]:
    experiment = {
        "id": facts.id,
        "name": facts.name,
        "host": facts.host,
        "created_by": facts.created_by,
        "attempt": facts.attempt,
        "step": facts.step,
        "outcome": facts.outcome,
        "reason": facts.reason,
        "detail": facts.detail,
        "duration_s": facts.seconds,
    }
    return {"experiment": experiment} | ({} if numbers is None else {"numbers": numbers, "comparison": comparison_data(facts.comparison)})


def comparison_data(comparison: Comparison | None) -> dict[str, Any] | None:
    """The verdict in short, for programs."""
    if comparison is None:
        return None
    effect = comparison.bench_phases[0].effect if comparison.bench_phases else None
    return {
        "baseline": comparison.baseline,
        "verdict": comparison.verdict,
        "tps_ratio": effect.tps_ratio if effect else None,
        "ci95": effect.ci95 if effect else None,
    }
