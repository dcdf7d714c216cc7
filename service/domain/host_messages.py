"""The words for what became of a host, its worker and its production."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from service.domain.figures import counted, named, span
from service.domain.messages import Fact, Link, Message, MessageType, Tone


@dataclass(frozen=True)
class HitExperiment:
    """An experiment that an outage met, and what is known of it by now."""

    id: int
    name: str
    state: str
    """In the words of the queue, such as `Loading`, `Failed in load: the host does not answer`."""

    @property
    def words(self) -> str:
        """Id, name and state."""
        return f"{self.id} {self.name} ({self.state})"


@dataclass(frozen=True)
class HostFacts:
    """What is known of a host at the moment it is told of."""

    host: str
    hit: list[HitExperiment] = field(default_factory=list)
    """Experiments that an outage met."""
    waiting: int = 0
    """Experiments queued there."""
    production: str = ""
    """What its shift is at, where production is not serving."""
    needs_person: bool = False


def unreachable(facts: HostFacts, at: datetime, why: str) -> Message:
    """One message for an outage, whatever number of experiments it meets."""
    met = f"It hit {named([one.words for one in facts.hit])}." if facts.hit else "No experiment ran there."
    return _message(
        facts, at, MessageType.HOST_UNREACHABLE, "bad", "🔌",
        f"{facts.host} does not answer" + (f": hit {named([f'{one.id} {one.name}' for one in facts.hit], 3)}" if facts.hit else ""),
        [why, met, _waiting(facts), _production(facts), "It is tried again all the time; one more message follows when it answers."],
        {"why": why},
    )  # fmt: skip


def recovered(facts: HostFacts, at: datetime, why: str) -> Message:
    """The other end of an outage, with what became of what it met."""
    became = f"What it hit: {named([one.words for one in facts.hit])}." if facts.hit else "It hit no experiment."
    return _message(
        facts, at, MessageType.HOST_RECOVERED, "good", "🔗", f"{facts.host} answers again" + (f" {why}" if why else ""),
        [became, _waiting(facts), _production(facts)], {"why": why},
    )  # fmt: skip


def blocked(facts: HostFacts, at: datetime, why: str) -> Message:
    """Nothing starts there until somebody has looked."""
    also = f"Ended by it: {named([one.words for one in facts.hit])}." if facts.hit else ""
    return _message(
        facts, at, MessageType.HOST_BLOCKED, "bad", "⛔", f"{facts.host} is blocked: {why}",
        [also, _waiting(facts), _production(facts)], {"why": why}, [f"expctl host show {facts.host}", f"expctl resume --host {facts.host}"],
    )  # fmt: skip


def worker_silent(facts: HostFacts, at: datetime, worker: str | None, why: str, seen_s: float | None) -> Message:
    """A worker that went without handing its host back, or that nobody started."""
    last = f"Its last sign of life was {span(seen_s)} ago." if seen_s is not None else ""
    running = f"It was at {named([one.words for one in facts.hit])}; the next worker goes on from there." if facts.hit else ""
    return _message(
        facts, at, MessageType.WORKER_SILENT, "bad", "💤",
        f"The worker of {facts.host} is silent" + (f" ({worker})" if worker else ""),
        [_sentence(why), last, running, _waiting(facts), _production(facts)],
        {"worker": worker, "why": why, "seen_s_ago": seen_s}, [f"expctl worker --host {facts.host}"],
    )  # fmt: skip


def worker_back(facts: HostFacts, at: datetime, worker: str | None) -> Message:
    """Somebody works there again."""
    title = f"{facts.host} is worked on again" + (f" by {worker}" if worker else "")
    return _message(facts, at, MessageType.WORKER_BACK, "good", "👋", title, [_production(facts)], {"worker": worker})


def restored(facts: HostFacts, at: datetime, data: Mapping[str, Any]) -> Message:
    """Production serves again, and what proves it."""
    units = [str(one) for one in data.get("units") or ()]
    proof = data.get("proof") or {}
    odd = [
        f"Changed meanwhile: {named([str(one) for one in data['changed']])}." if data.get("changed") else "",
        f"The host was rebooted: {data['host_rebooted']}" if data.get("host_rebooted") else "",
        f"The host did it by itself: {data['given_back_by_host']}" if data.get("given_back_by_host") else "",
        str(data.get("not_clean") or ""),
    ]
    shown = [Fact(name=f"Proof of {unit}", value=str(answer)) for unit, answer in proof.items()]
    told = Message(
        type=MessageType.PRODUCTION_RESTORED,
        at=at,
        tone="warning" if any(odd) else "good",
        icon="🏠",
        headline=f"{facts.host}: production serves again ({named(units) or 'no unit was parked'})",
        facts=[
            Fact(name="Not serving for", value=span(data.get("away_s"))),
            Fact(name="Back after", value=span(data.get("after_s"))),
            *shown[:6],
        ],
        lines=[line for line in odd if line],
        links=[Link(text="Timeline", path="/timeline")],
        data={"host": facts.host, "units": units, "away_s": data.get("away_s"), "after_s": data.get("after_s"), "proven": bool(proof)},
    )
    return told if proof or not units else told.model_copy(update={"lines": [*told.lines, "What proves it was not recorded."]})


def not_restored(facts: HostFacts, at: datetime, data: Mapping[str, Any]) -> Message:
    """The loudest message there is."""
    units = [str(one) for one in data.get("units") or ()]
    tried = data.get("tried_for_s")
    why = str(data.get("why") or "why is not known")
    going_on = f"Tried for {span(tried)} so far, and it is tried on; a message follows when it serves." if tried else ""
    return _message(
        facts, at, MessageType.PRODUCTION_NOT_RESTORED, "bad", "🚨",
        f"{facts.host}: PRODUCTION IS NOT RESTORED ({named(units) or 'units not known'})",
        [_sentence(why), going_on, "A person should look now."],
        {"units": units, "why": why, "tried_for_s": tried}, [f"expctl host show {facts.host}"],
    )  # fmt: skip


def _message(
    facts: HostFacts,
    at: datetime,
    kind: MessageType,
    tone: Tone,
    icon: str,
    headline: str,
    lines: list[str],
    data: dict[str, Any],
    commands: list[str] | None = None,
) -> Message:
    hit = [{"id": one.id, "name": one.name, "state": one.state} for one in facts.hit]
    return Message(
        type=kind,
        at=at,
        tone=tone,
        icon=icon,
        headline=headline,
        lines=[line for line in lines if line],
        commands=commands or [],
        links=[Link(text="Timeline", path="/timeline")],
        data={"host": facts.host, "experiments": hit, "waiting": facts.waiting, **data},
    )


def _waiting(facts: HostFacts) -> str:
    return f"{counted(facts.waiting, 'experiment')} {'waits' if facts.waiting == 1 else 'wait'} there." if facts.waiting else ""


def _production(facts: HostFacts) -> str:
    if not facts.production:
        return ""
    return f"{facts.host}: {facts.production}." + (" A person should look." if facts.needs_person else "")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".") if text else ""
