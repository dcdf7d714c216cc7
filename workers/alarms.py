"""What the steward sees of the hosts: whose worker has to be woken, whose has fallen silent, and where production is left alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlmodel import Session

from service.domain.events import EventType
from service.domain.host_config import HostConfig
from service.store import agenda, events, hosts, shifts, workers
from service.store.tables import HostRow, ShiftRow

STEWARD = "steward"
TOLD = "left_alone_told"
"""In what a shift knows of parked production: the alarm was raised."""


@dataclass(frozen=True)
class Alarm:
    """What has to be told, once."""

    kind: EventType
    host: HostRow
    data: dict[str, Any]
    shift: ShiftRow | None = None

    def tell(self, session: Session) -> None:
        """Write the event, and that it was told. The rows must be of this session."""
        events.emit(session, self.kind, STEWARD, host=self.host.name, data=self.data)
        if self.shift is None:
            self.host.worker_silent = self.kind == EventType.WORKER_SILENT
            session.add(self.host)
        else:
            self.shift.parked = {**self.shift.parked, TOLD: True}
            session.add(self.shift)


@dataclass
class Sight:
    """What one look has found."""

    to_wake: list[str] = field(default_factory=list)
    """Hosts with something to do, a worker that lives, and nobody who does it."""
    alarms: list[Alarm] = field(default_factory=list)


class Lookout:
    """Looks at every host again and again, and remembers since when each has been on its own. Times are seconds."""

    def __init__(self, silent_s: float, clock: Callable[[], float]) -> None:
        self._silent_s, self._clock = silent_s, clock
        self._unmanned: dict[int, float] = {}
        """Host with work and no worker -> since when."""
        self._left: dict[int, float] = {}
        """Host whose production is parked and which nobody holds -> since when."""

    def look(self, session: Session, now: datetime) -> Sight:
        """Look at every host. Changes nothing in the database."""
        sight = Sight()
        latest: dict[str, workers.Seen] = {}
        for one in workers.seen(session):
            latest.setdefault(one.host, one)
        lapsed = {row.id for row in hosts.silent(session)}
        for row in hosts.every(session):
            host_id = row.id or 0
            worker = latest.get(row.name)
            manned = worker is not None and worker.age_s < self._silent_s
            idle = not hosts.attended(session, host_id)
            due = idle and agenda.of(session, row.name, now).anything
            if due and manned:
                sight.to_wake.append(row.name)
            unmanned_s = self._since(self._unmanned, host_id, lasts=due and not manned)
            silent = _why_silent(lapsed=row.id in lapsed, unmanned_s=unmanned_s, silent_s=self._silent_s)
            if bool(silent) != row.worker_silent:
                kind = EventType.WORKER_SILENT if silent else EventType.WORKER_BACK
                who = row.lease_owner or (worker.owner if worker else None)
                sight.alarms.append(Alarm(kind, row, {"worker": who} | ({"why": silent} if silent else {})))
            sight.alarms += self._left_alone(row, shifts.current(session, host_id) if idle else None)
        return sight

    def _left_alone(self, row: HostRow, shift: ShiftRow | None) -> list[Alarm]:
        """Production is parked, and nobody has come for longer than the host itself waits before it brings it back."""
        config = HostConfig.model_validate(row.config)
        away = shift is not None and shift.phase != "open" and bool(config.park)
        left_s = self._since(self._left, row.id or 0, lasts=away)
        if shift is None or left_s <= config.dead_man or shift.parked.get(TOLD):
            return []
        why = (
            f"no worker has held the host for {left_s / 60:.0f} minutes while its production was parked; the host's own dead-man"
            " should have brought it back by now, and nobody has seen that"
        )
        return [Alarm(EventType.PRODUCTION_NOT_RESTORED, row, {"shift": shift.id, "units": config.park, "why": why}, shift)]

    def _since(self, memory: dict[int, float], host_id: int, *, lasts: bool) -> float:
        """For how long something has lasted on a host."""
        if not lasts:
            memory.pop(host_id, None)
            return 0.0
        return self._clock() - memory.setdefault(host_id, self._clock())


def _why_silent(*, lapsed: bool, unmanned_s: float, silent_s: float) -> str:
    """Why a worker counts as silent; empty where it does not."""
    if lapsed:
        return "it held the host, and its lease ran out without a word"
    if unmanned_s >= silent_s:
        return f"there is work for the host, and no worker of it has been seen for {unmanned_s:.0f} s"
    return ""
