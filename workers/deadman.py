"""The host's dead-man, kept from firing: by a thread of its own, over a connection of its own, as long as the lease is ours."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog
from sqlalchemy.exc import SQLAlchemyError

from service.store import hosts
from service.store.database import Database
from service.store.hosts import Lease
from workers.beat import Beat
from workers.hosts.base import DeadManFired, HostError, ProductionHost

log = structlog.get_logger()

MOST_S = 60.0


class DeadMan(Beat):
    """Renews the deadline while production is parked. `fired` is set once the host has given production back by itself."""

    def __init__(self, database: Database, lease: Lease, host: Callable[[], ProductionHost], ttl_s: float) -> None:
        super().__init__(f"dead-man-{lease.host}", min(MOST_S, ttl_s / 6))
        self.fired: DeadManFired | None = None
        self._database, self._lease, self._make_host, self._ttl_s = database, lease, host, ttl_s
        self._host: ProductionHost | None = None
        self._parked = threading.Event()

    def watch(self, parked: bool) -> None:
        """Begin or end renewing: only what is parked can be lost."""
        (self._parked.set if parked else self._parked.clear)()

    def beat(self) -> bool:
        """Renew the deadline; over once it has passed all the same."""
        if not self._parked.is_set():
            return True
        try:
            with self._database.read() as session:
                if not hosts.holds(session, self._lease):
                    return True  # Whoever holds the host now renews it, or nobody should.
            self._host = self._host or self._make_host()
            self._host.arm(self._ttl_s)
        except DeadManFired as fired:
            self.fired = fired
            log.warning("the host gave production back by itself", host=self._lease.host, at=fired.fired_at, why=fired.why)
            return False
        except (HostError, SQLAlchemyError) as error:
            # It holds for many beats; the next one tries again.
            log.warning("the dead-man could not be renewed", host=self._lease.host, error=str(error))
        return True
