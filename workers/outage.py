"""What is done while a host does not answer: told once, waited for, told again when it is back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from service.domain.events import EventType
from service.store import events, hosts
from service.store.database import Database
from service.store.hosts import Lease
from service.store.tables import utc_now
from workers.hosts.base import HostBusy, HostError
from workers.hosts.transport import TransportError

log = structlog.get_logger()

PAUSE_S = 2.0
BUSY_S = 300.0
"""A unit that does not want to end is given two minutes, and the kernel some more."""


@dataclass
class Outage:
    """Watches one host for one holder of its lease."""

    database: Database
    lease: Lease
    check: Callable[[], None]
    """Raises HandOver or ClaimLost where there is cause."""
    wait: Callable[[float], None]
    patience_s: float | None = None
    """How long to wait; None: for ever, since a promise is to be kept."""
    _since: float | None = field(default=None, init=False)

    def lost(self, error: TransportError, *, first: bool) -> None:
        """Tell, where it is news; pause; or give up."""
        self._since = self._since if self._since is not None else time.monotonic()
        if first:
            log.warning("the host does not answer", host=self.lease.host, why=error.evidence)
            self._tell(EventType.HOST_UNREACHABLE, error.evidence)
        self.check()
        waited = time.monotonic() - self._since
        if self.patience_s is not None and waited > self.patience_s:
            raise HostError(error.reason, f"no answer for {waited:.0f} s: {error.evidence}")
        self.wait(PAUSE_S)

    def back(self) -> None:
        """Tell that it answers again."""
        away = time.monotonic() - (self._since or time.monotonic())
        self._since = None
        log.info("the host answers again", host=self.lease.host, away_s=round(away, 1))
        self._tell(EventType.HOST_RECOVERED, f"after {away:.0f} s")

    def busy(self, error: HostBusy, since: float) -> None:
        """Wait for what somebody else has begun, or give up."""
        self.check()
        if time.monotonic() - since > BUSY_S:
            raise error
        self.wait(PAUSE_S)

    def _tell(self, kind: EventType, why: str) -> None:
        with self.database.write() as session:
            hosts.guard(session, self.lease)
            row = hosts.by_name(session, self.lease.host)
            lost = kind == EventType.HOST_UNREACHABLE
            if lost == (row.unreachable_since is not None):
                return
            row.unreachable_since = utc_now() if lost else None
            session.add(row)
            events.emit(session, kind, f"worker:{self.lease.owner}", host=self.lease.host, data={"why": why})
