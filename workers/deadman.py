"""The host's dead-man, kept from firing: by a thread of its own, over a connection of its own, as long as the lease is ours."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

import structlog
from sqlalchemy.exc import SQLAlchemyError

from service.store import hosts
from service.store.database import Database
from service.store.hosts import Lease
from workers.hosts.base import DeadManFired, HostError, ProductionHost

log = structlog.get_logger()

MOST_S = 60.0


class DeadMan:
    """Renews the deadline while production is parked. `fired` is set once the host has given production back by itself."""

    def __init__(self, database: Database, lease: Lease, host: Callable[[], ProductionHost], ttl_s: float) -> None:
        self.fired: DeadManFired | None = None
        self._database, self._lease, self._make_host, self._ttl_s = database, lease, host, ttl_s
        self._every_s = min(MOST_S, ttl_s / 6)
        self._stop, self._parked = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"dead-man-{lease.host}", daemon=True)

    def watch(self, parked: bool) -> None:
        """Begin or end renewing: only what is parked can be lost."""
        (self._parked.set if parked else self._parked.clear)()

    def _beat(self) -> None:
        host: ProductionHost | None = None
        while not self._stop.wait(self._every_s):
            if not self._parked.is_set():
                continue
            try:
                with self._database.read() as session:
                    if not hosts.holds(session, self._lease):
                        continue  # Whoever holds the host now renews it, or nobody should.
                host = host or self._make_host()
                host.arm(self._ttl_s)
            except DeadManFired as fired:
                self.fired = fired
                log.warning("the host gave production back by itself", host=self._lease.host, at=fired.fired_at, why=fired.why)
                return
            except (HostError, SQLAlchemyError) as error:
                # It holds for many beats; the next one tries again.
                log.warning("the dead-man could not be renewed", host=self._lease.host, error=str(error))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(timeout=self._every_s + 30)
