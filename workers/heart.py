"""The heartbeat of a lease: beats in its own thread, and stops when the work it stands for is wedged."""

from __future__ import annotations

import threading
import time

import structlog
from sqlalchemy.exc import SQLAlchemyError

from service.domain.errors import ClaimLost
from service.store import hosts
from service.store.database import Database
from service.store.hosts import HEARTBEAT_S, LEASE_S, Lease
from workers.beat import Beat
from workers.steps.base import HandOver

log = structlog.get_logger()

WEDGED_S = 600.0
"""Work that has not called `tick` for this long is taken for stuck, and its lease is left to run out."""


class Heart(Beat):
    """Keeps a lease alive while its holder works. `lost` is set once the lease is somebody else's."""

    def __init__(self, database: Database, lease: Lease, *, every_s: float = HEARTBEAT_S, lease_s: float = LEASE_S) -> None:
        super().__init__(f"heart-{lease.host}", every_s)
        self.lost = threading.Event()
        self._database, self._lease, self._lease_s = database, lease, lease_s
        self._ticked = time.monotonic()

    def tick(self) -> None:
        """The work is alive."""
        self._ticked = time.monotonic()

    def check(self, stop: threading.Event) -> None:
        """A tick that also says whether to go on: raises ClaimLost, or HandOver where this worker is asked to go."""
        self.tick()
        if self.lost.is_set():
            raise ClaimLost(f"{self._lease.owner} no longer holds {self._lease.host}")
        if stop.is_set():
            raise HandOver

    def beat(self) -> bool:
        """Extend the lease; over once it is lost, or once the work is stuck."""
        if time.monotonic() - self._ticked > WEDGED_S:
            log.error("the work is stuck; its lease is left to run out", host=self._lease.host)
            return False
        try:
            with self._database.write() as session:
                hosts.heartbeat(session, self._lease, self._lease_s)
        except ClaimLost:
            self.lost.set()
            return False
        except SQLAlchemyError as error:
            # The lease outlives a few missed beats; the next beat tries again.
            log.warning("heartbeat failed", host=self._lease.host, error=str(error))
        return True
