"""From events to messages: which event is told, in which words, and to whom. Reads the store, changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlmodel import Session

from service.domain import digest as digest_words
from service.domain import experiment_messages, host_messages
from service.domain.events import Event, EventType
from service.domain.messages import Message, MessageType
from service.domain.reasons import Reason
from service.domain.status import Outcome
from service.store import digest, experiments, hosts, telling, workers
from service.store.tables import NotifierRow

OF_AN_OUTAGE = frozenset({Reason.HOST_UNREACHABLE, Reason.CONNECTION_LOST, Reason.CONNECTION_REFUSED, Reason.DEPENDENCY_FAILED})
"""While a host does not answer, experiments that end for these are named in the outage's messages instead of one by one."""


@dataclass(frozen=True)
class News:
    """A message, and what decides where it goes."""

    key: str
    line: str
    message: Message
    hosts: list[str]
    named: list[str] = field(default_factory=list)
    """Notifiers that the experiments it is about name."""
    event_id: int | None = None
    experiment_id: int | None = None


@dataclass
class Outages:
    """Hosts that do not answer just now, and the experiments that met it. Kept with the mark, so that no restart forgets one."""

    hit: dict[str, list[int]]

    @classmethod
    def load(cls, state: dict[str, Any]) -> Outages:
        """As it was kept."""
        return cls({str(host): [int(one) for one in ids] for host, ids in (state.get("outages") or {}).items()})

    def kept(self) -> dict[str, Any]:
        """As it is kept."""
        return {"outages": self.hit}

    def add(self, host: str | None, experiment_id: int) -> bool:
        """Count an experiment in, where its host is away; True if so."""
        if host is None or host not in self.hit:
            return False
        if experiment_id not in self.hit[host]:
            self.hit[host].append(experiment_id)
        return True


def news_of(session: Session, event: Event, outages: Outages) -> News | None:
    """What is told of one event; None where nothing is."""
    tell = _TOLD.get(event.type)
    return None if tell is None else tell(session, event, outages)


def in_short(event: Event) -> News:
    """The same in one line, for an event whose message could not be made."""
    words = f"{event.type} on {event.host or 'no host'}" + (f", experiment {event.experiment_id}" if event.experiment_id else "")
    about = {"event": event.id, "host": event.host, "experiment": {"id": event.experiment_id} if event.experiment_id else None}
    message = Message(
        type=_SHORT[event.type],
        at=event.at,
        tone="warning",
        icon="❔",
        headline=words,
        lines=["Its details could not be read."],
        data=about,
    )
    line = f"experiment:{event.experiment_id}" if event.experiment_id else f"host:{event.host}"
    return News(_key(event), line, message, [event.host or ""], [], event.id, event.experiment_id)


def _key(event: Event) -> str:
    return f"event:{event.id}"


def _of_experiment(session: Session, event: Event, message: Message) -> News:
    experiment_id = event.experiment_id or 0
    named = telling.names_of(session, [experiment_id])
    return News(_key(event), f"experiment:{experiment_id}", message, [event.host or ""], named, event.id, experiment_id)


def _started(session: Session, event: Event, outages: Outages) -> News | None:
    del outages
    facts = telling.experiment_facts(session, experiments.get(session, event.experiment_id or 0))
    return _of_experiment(session, event, experiment_messages.started(facts, event.at))


def _finished(session: Session, event: Event, outages: Outages) -> News | None:
    row = experiments.get(session, event.experiment_id or 0)
    if row.outcome == Outcome.CANCELLED:
        return None  # whoever did it knows
    if row.outcome != Outcome.SUCCEEDED and row.reason in OF_AN_OUTAGE and outages.add(event.host, row.id or 0):
        return None
    good = row.outcome == Outcome.SUCCEEDED
    facts = telling.experiment_facts(session, row, measured=good, log=not good)
    words = experiment_messages.finished if good else experiment_messages.failed
    return _of_experiment(session, event, words(facts, event.at))


def _stalled(session: Session, event: Event, outages: Outages) -> News | None:
    del outages
    facts = telling.experiment_facts(session, experiments.get(session, event.experiment_id or 0), log=True)
    data = event.data
    return _of_experiment(
        session,
        event,
        experiment_messages.stalled(
            facts, event.at, data.get("silent_s"), data.get("limit_s"), str(data.get("where") or ""), data.get("looked_at") or {}
        ),
    )


def _of_host(session: Session, event: Event, message: Message, ids: Collection[int] = ()) -> News:
    host = event.host or ""
    return News(_key(event), f"host:{host}", message, [host], telling.names_of(session, ids), event.id)


def _unreachable(session: Session, event: Event, outages: Outages) -> News:
    host = event.host or ""
    ids = outages.hit[host] = telling.running_on(session, host)
    facts = telling.host_facts(session, host, ids)
    return _of_host(session, event, host_messages.unreachable(facts, event.at, str(event.data.get("why") or "")), ids)


def _recovered(session: Session, event: Event, outages: Outages) -> News:
    ids = outages.hit.pop(event.host or "", [])
    facts = telling.host_facts(session, event.host or "", ids)
    return _of_host(session, event, host_messages.recovered(facts, event.at, str(event.data.get("why") or "")), ids)


def _blocked(session: Session, event: Event, outages: Outages) -> News | None:
    why = str(event.data.get("why") or "")
    if why.startswith(hosts.NOT_RESTORED):
        return None  # the same fact, told by the loudest message there is
    ids = outages.hit.get(event.host or "", [])
    facts = telling.host_facts(session, event.host or "", ids)
    return _of_host(session, event, host_messages.blocked(facts, event.at, why), ids)


def _silent(session: Session, event: Event, outages: Outages) -> News:
    del outages
    host, worker = event.host or "", event.data.get("worker")
    seen = [one.age_s for one in workers.seen(session) if one.host == host and one.owner == worker]
    facts = telling.host_facts(session, host, telling.running_on(session, host))
    message = host_messages.worker_silent(facts, event.at, worker, str(event.data.get("why") or ""), seen[0] if seen else None)
    return _of_host(session, event, message, [one.id for one in facts.hit])


def _back(session: Session, event: Event, outages: Outages) -> News:
    del outages
    message = host_messages.worker_back(telling.host_facts(session, event.host or ""), event.at, event.data.get("worker"))
    return _of_host(session, event, message)


def _restored(session: Session, event: Event, outages: Outages) -> News:
    del outages
    return _of_host(session, event, host_messages.restored(telling.host_facts(session, event.host or ""), event.at, event.data))


def _not_restored(session: Session, event: Event, outages: Outages) -> News:
    del outages
    return _of_host(session, event, host_messages.not_restored(telling.host_facts(session, event.host or ""), event.at, event.data))


_TOLD: dict[EventType, Callable[[Session, Event, Outages], News | None]] = {
    EventType.EXPERIMENT_STARTED: _started,
    EventType.EXPERIMENT_FINISHED: _finished,
    EventType.LOAD_STALLED: _stalled,
    EventType.HOST_UNREACHABLE: _unreachable,
    EventType.HOST_RECOVERED: _recovered,
    EventType.HOST_BLOCKED: _blocked,
    EventType.WORKER_SILENT: _silent,
    EventType.WORKER_BACK: _back,
    EventType.PRODUCTION_RESTORED: _restored,
    EventType.PRODUCTION_NOT_RESTORED: _not_restored,
}
INTERESTING = tuple(_TOLD)
"""Events that may be told."""

_SHORT = {
    EventType.EXPERIMENT_STARTED: MessageType.EXPERIMENT_STARTED,
    EventType.EXPERIMENT_FINISHED: MessageType.EXPERIMENT_FINISHED,
    EventType.LOAD_STALLED: MessageType.EXPERIMENT_STALLED,
    EventType.HOST_UNREACHABLE: MessageType.HOST_UNREACHABLE,
    EventType.HOST_RECOVERED: MessageType.HOST_RECOVERED,
    EventType.HOST_BLOCKED: MessageType.HOST_BLOCKED,
    EventType.WORKER_SILENT: MessageType.WORKER_SILENT,
    EventType.WORKER_BACK: MessageType.WORKER_BACK,
    EventType.PRODUCTION_RESTORED: MessageType.PRODUCTION_RESTORED,
    EventType.PRODUCTION_NOT_RESTORED: MessageType.PRODUCTION_NOT_RESTORED,
}


def digest_for(session: Session, notifier: NotifierRow, now: datetime) -> tuple[News, int] | None:
    """The digest that a notifier is due, and the newest event it tells of; None where the night goes on or was empty."""
    night = digest.untold(session, notifier.hosts, notifier.digest_event)
    if not digest.over(session, night, now):
        return None
    message = digest_words.digest(digest.facts(session, night, now), now)
    names = [row.name for row in night.hosts]
    return News(f"digest:{night.last_event}", "digest", message, names, []), night.last_event
