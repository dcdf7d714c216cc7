"""A shift's own writing, on the real store: fenced, one transaction each."""

from __future__ import annotations

import threading
import time
from typing import Any

from sqlmodel import Session

from service.domain.errors import ClaimLost
from service.domain.events import EventType
from service.store import durations, events, hosts, shifts
from service.store.database import Database
from service.store.hosts import Lease
from service.store.tables import ShiftRow
from workers.heart import Heart


class ShiftBook:
    """One shift of one host."""

    def __init__(self, database: Database, lease: Lease, heart: Heart, stop: threading.Event, shift_id: int) -> None:
        self.shift_id = shift_id
        self._database, self._lease, self._heart, self._stop = database, lease, heart, stop
        self._began: dict[str, tuple[float, int]] = {}
        """What this worker has begun itself: when by its own clock, and the latest event then."""

    def check(self) -> None:
        """Raise HandOver or ClaimLost where there is cause."""
        self._heart.check(self._stop)
        with self._database.read() as session:
            if not hosts.holds(session, self._lease):
                raise ClaimLost(f"{self._lease.owner} no longer holds {self._lease.host}")

    def wait(self, seconds: float) -> None:
        """Let time pass; ends early once asked to stop."""
        self._stop.wait(seconds)

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def phase(self) -> str:
        """Where the shift is."""
        with self._database.read() as session:
            return shifts.get(session, self.shift_id).phase

    def closing(self) -> str | None:
        """Why it ends, once that is decided."""
        with self._database.read() as session:
            return shifts.get(session, self.shift_id).closing

    def decide_closing(self, why: str) -> None:
        """Decide that it ends."""
        with self._database.write() as session:
            shifts.decide_closing(session, self._lease, self.shift_id, why)

    def parked(self) -> dict[str, Any]:
        """What is known of the parked production."""
        with self._database.read() as session:
            return dict(shifts.get(session, self.shift_id).parked)

    def note(self, phase: str | None = None, **parked: Any) -> None:
        """Write down how far parking or restoring is."""
        with self._database.write() as session:
            row = shifts.get(session, self.shift_id)
            self._time(session, row, phase, parked)
            values: dict[str, Any] = {"parked": {**row.parked, **parked}}
            shifts.note(session, self._lease, self.shift_id, **values, **({"phase": phase} if phase else {}))

    def _time(self, session: Session, row: ShiftRow, phase: str | None, parked: dict[str, Any]) -> None:
        """Keep how long parking and restoring took, unless another worker had begun it."""
        if phase in {"parking", "restoring"} and row.phase != phase:
            self._began[phase] = (time.monotonic(), events.latest(session))
        done = "parking" if phase == "parked" else "restoring" if "restored_at" in parked else ""
        if done in self._began:
            since, event = self._began.pop(done)
            part = "park" if done == "parking" else "restore"
            durations.of_shift(session, self._lease.host_id, self._lease.host, part, time.monotonic() - since, event)

    def emit(self, kind: EventType, **data: Any) -> None:
        """Tell what happened."""
        with self._database.write() as session:
            hosts.guard(session, self._lease)
            events.emit(session, kind, f"worker:{self._lease.owner}", host=self._lease.host, data={"shift": self.shift_id, **data})

    def block(self, why: str | None) -> None:
        """Let nothing start on the host, or let it again."""
        with self._database.write() as session:
            hosts.block(session, self._lease, why)
