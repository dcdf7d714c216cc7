"""The heartbeat of a lease: beats in its own thread, and stops when the work it stands for is wedged."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

import structlog
from sqlalchemy.exc import SQLAlchemyError

from service.domain.errors import ClaimLost
from service.store import hosts
from service.store.database import Database
from service.store.hosts import HEARTBEAT_S, LEASE_S, Lease

log = structlog.get_logger()

WEDGED_S = 600.0
"""Work that has not called `tick` for this long is taken for stuck, and its lease is left to run out."""


class Heart:
    """Keeps a lease alive while its holder works. `lost` is set once the lease is somebody else's."""

    def __init__(self, database: Database, lease: Lease, *, every_s: float = HEARTBEAT_S, lease_s: float = LEASE_S) -> None:
        self.lost = threading.Event()
        self._database, self._lease, self._every_s, self._lease_s = database, lease, every_s, lease_s
        self._stop = threading.Event()
        self._ticked = time.monotonic()
        self._thread = threading.Thread(target=self._beat, name=f"heart-{lease.host}", daemon=True)

    def tick(self) -> None:
        """The work is alive."""
        self._ticked = time.monotonic()

    def _beat(self) -> None:
        while not self._stop.wait(self._every_s):
            if time.monotonic() - self._ticked > WEDGED_S:
                log.error("the work is stuck; its lease is left to run out", host=self._lease.host)
                return
            try:
                with self._database.write() as session:
                    hosts.heartbeat(session, self._lease, self._lease_s)
            except ClaimLost:
                self.lost.set()
                return
            except SQLAlchemyError as error:
                # The lease outlives a few missed beats; the next beat tries again.
                log.warning("heartbeat failed", host=self._lease.host, error=str(error))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(timeout=self._every_s + 30)
