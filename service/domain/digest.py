"""The words for a night: what ran, what was best, what failed and why, and whether production is back."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from service.domain.experiment_messages import ExperimentFacts, comparison_data, headline_numbers
from service.domain.figures import change, counted, named, number, span
from service.domain.messages import Fact, Link, Message, MessageType, Tone
from service.domain.reasons import RULES
from service.domain.status import Outcome

RANKED = 8
"""Lines of the table."""
TITLE = 28
_VERDICTS = {
    "better": "better",
    "worse": "worse",
    "no_difference_shown": "~",
    "not_comparable": "not comparable",
    "invalid": "invalid",
}


@dataclass(frozen=True)
class NightFacts:
    """What is known of one night of a group of hosts."""

    hosts: list[str]
    label: str
    """Such as `30 Nov`, the evening's date where the hosts are."""
    began: datetime
    experiments: list[ExperimentFacts] = field(default_factory=list)
    """Those that ended, in order."""
    gpu_s: float | None = None
    """Seconds of experiments times the GPUs they had; None where nobody knows how many."""
    gpus_unknown: int = 0
    """Experiments that `gpu_s` leaves out."""
    loads: int = 0
    production: list[tuple[str, str, bool]] = field(default_factory=list)
    """Host, what is known of its production, and whether it is proven to serve. Hosts where nothing is parked are left out."""
    waiting: int = 0
    """Experiments that are still queued."""


def digest(facts: NightFacts, at: datetime) -> Message:
    """One message for the night."""
    by_outcome = Counter(one.outcome for one in facts.experiments)
    lost = [line for _, line, proven in facts.production if not proven]
    tone: Tone = "bad" if lost else "warning" if by_outcome[Outcome.FAILED] or by_outcome[Outcome.INVALID] else "good"
    return Message(
        type=MessageType.NIGHT_DIGEST,
        at=at,
        tone=tone,
        icon="🌅",
        headline=f"Night of {facts.label}: {_counts(by_outcome)}, {_gpu_time(facts)}" + (", PRODUCTION NOT PROVEN" if lost else ""),
        facts=[
            Fact(name="Hosts", value=named(facts.hosts)),
            Fact(name="Loads", value=str(facts.loads)),
            Fact(name="GPU time", value=span(facts.gpu_s) + _uncounted(facts)),
        ],
        lines=[line for line in (_best(facts), *_failures(facts), *_production(facts), _left(facts)) if line],
        code=_table(facts),
        links=[Link(text="Timeline", path="/timeline")],
        data=_data(facts, by_outcome),
    )


def ranked(facts: NightFacts) -> list[ExperimentFacts]:
    """Measured ones: those with an effect first, the largest on top; then by speed; then those that are not known."""

    def place(one: ExperimentFacts) -> tuple[int, float]:
        effect, speed = _ratio(one), _speed(one)
        if effect is not None:
            return 0, -effect
        return (2, 0.0) if speed is None else (1, -speed)

    return sorted((one for one in facts.experiments if one.outcome == Outcome.SUCCEEDED), key=place)


def _ratio(one: ExperimentFacts) -> float | None:
    phases = one.comparison.bench_phases if one.comparison else []
    return phases[0].effect.tps_ratio if phases and phases[0].effect else None


def _speed(one: ExperimentFacts) -> float | None:
    numbers = headline_numbers(one)
    return numbers["tps"] if numbers["tps"] is not None else numbers["output_tps"]


def _counts(by_outcome: Counter[Outcome | None]) -> str:
    words = {Outcome.SUCCEEDED: "done", Outcome.FAILED: "failed", Outcome.INVALID: "invalid", Outcome.CANCELLED: "cancelled"}
    told = [f"{by_outcome[outcome]} {word}" for outcome, word in words.items() if by_outcome[outcome]]
    return ", ".join(told) or "nothing ended"


def _gpu_time(facts: NightFacts) -> str:
    return f"{span(facts.gpu_s)} GPU time" if facts.gpu_s is not None else "GPU time not known"


def _uncounted(facts: NightFacts) -> str:
    return f"; how many GPUs {counted(facts.gpus_unknown, 'experiment')} had is not known" if facts.gpus_unknown else ""


def _best(facts: NightFacts) -> str:
    best = next((one for one in ranked(facts) if one.comparison and one.comparison.verdict == "better"), None)
    if best is not None and best.comparison is not None:
        return f"Best: {best.title}, {change(_ratio(best) or 1.0)} tok/s vs {best.comparison.baseline}."
    compared = any(one.comparison for one in facts.experiments)
    return "Nothing was shown to be better than its baseline." if compared else ""


def _failures(facts: NightFacts) -> list[str]:
    """A sentence a cause, the most frequent first."""
    lost = [one for one in facts.experiments if one.outcome in {Outcome.FAILED, Outcome.INVALID}]
    causes = Counter(one.reason for one in lost)
    return [
        f"{count} because {RULES[reason].sentence if reason else 'of a reason that was not recorded'}: "
        f"{named([str(one.id) for one in lost if one.reason == reason])}."
        for reason, count in causes.most_common()
    ]


def _production(facts: NightFacts) -> list[str]:
    return [f"{host}: {line}." for host, line, _ in facts.production]


def _left(facts: NightFacts) -> str:
    return f"{counted(facts.waiting, 'experiment')} still {'waits' if facts.waiting == 1 else 'wait'}." if facts.waiting else ""


def _table(facts: NightFacts) -> str:
    rows = ranked(facts)
    if not rows:
        return ""
    lines = [f"{'ID':>5}  {'NAME':<{TITLE}} {'tok/s':>8}  {'vs':>5} {'change':>8}  VERDICT"]
    for one in rows[:RANKED]:
        speed, ratio = _speed(one), _ratio(one)
        name = one.name if len(one.name) <= TITLE else one.name[: TITLE - 1] + "…"
        base = str(one.comparison.baseline) if one.comparison else "-"
        verdict = _VERDICTS[one.comparison.verdict] if one.comparison else "-"
        told = change(ratio) if ratio is not None else "-"
        lines.append(f"{one.id:>5}  {name:<{TITLE}} {number(speed) if speed is not None else '-':>8}  {base:>5} {told:>8}  {verdict}")
    if len(rows) > RANKED:
        lines.append(f"       and {len(rows) - RANKED} more")
    return "\n".join(lines)


def _data(facts: NightFacts, by_outcome: Counter[Outcome | None]) -> dict[str, Any]:
    best = [
        {"id": one.id, "name": one.name, "host": one.host, "tps": _speed(one), "comparison": comparison_data(one.comparison)}
        for one in ranked(facts)[:RANKED]
    ]
    lost = Counter(str(one.reason) for one in facts.experiments if one.reason and one.outcome in {Outcome.FAILED, Outcome.INVALID})
    return {
        "hosts": facts.hosts,
        "night": facts.label,
        "began": facts.began.isoformat(),
        "outcomes": {str(outcome): count for outcome, count in by_outcome.items()},
        "ranked": best,
        "failures": dict(lost),
        "gpu_hours": round(facts.gpu_s / 3600, 2) if facts.gpu_s is not None else None,
        "loads": facts.loads,
        "production": [{"host": host, "proven": proven, "text": line} for host, line, proven in facts.production],
        "waiting": facts.waiting,
    }
