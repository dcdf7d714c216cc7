"""The ticking things that belong to no host, done by one process of all that are ready to: alarms, wake-ups, tidying, messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import structlog
from sqlalchemy.exc import SQLAlchemyError

from service.domain.errors import ClaimLost
from service.store import idempotency, singletons, workers
from service.store.database import Database
from service.store.singletons import Hold
from service.wake import Waker
from workers.alarms import STEWARD, Lookout
from workers.beat import Beat

log = structlog.get_logger()

LEASE_S = 15.0
TICK_S = 5.0
"""Between two looks: a message that was lost is sent again after so long."""
CLAIM_S = 2.0
TIDY_S = 60.0
DEAD_S = 3600.0
"""A worker not seen for so long is no longer worth mentioning."""
KEY_AGE = timedelta(days=1)
"""Nobody sends the same submission again after that."""
POSTMAN_S = 5.0


class Office(Beat):
    """Keeps the steward's lease. `over` is set once it is lost, or may be."""

    def __init__(self, database: Database, hold: Hold, over: threading.Event, lease_s: float) -> None:
        super().__init__("office", lease_s / 3)
        self._database, self._hold, self._over, self._lease_s = database, hold, over, lease_s
        self._kept = time.monotonic()

    def beat(self) -> bool:
        """Extend it; over once it is lost, or once it has run out while the database did not answer."""
        asked = time.monotonic()
        try:
            with self._database.write() as session:
                singletons.heartbeat(session, self._hold, self._lease_s)
            self._kept = asked
        except ClaimLost:
            self._over.set()
        except SQLAlchemyError as error:
            log.warning("the steward's heartbeat failed", error=str(error))
            if time.monotonic() - self._kept > self._lease_s:
                self._over.set()
        return not self._over.is_set()


@dataclass
class Steward:
    """One process that is ready to be the steward."""

    database: Database
    owner: str
    silent_s: float
    """After how long a worker that is not seen counts as silent."""
    waker: Waker
    deliver: Callable[[threading.Event], None]
    """Sends messages until the event is set."""
    stop: threading.Event
    lease_s: float = LEASE_S
    clock: Callable[[], float] = time.monotonic

    def run(self) -> None:
        """Be the steward whenever nobody else is, until asked to stop."""
        while not self.stop.is_set():
            try:
                with self.database.write() as session:
                    hold = singletons.claim(session, STEWARD, self.owner, self.lease_s)
                if hold is not None:
                    self._serve(hold)
            except SQLAlchemyError as error:
                log.warning("database error", error=str(error))
            self.stop.wait(CLAIM_S)

    def _serve(self, hold: Hold) -> None:
        """Be the steward until it is over."""
        log.info("this is the steward now", owner=self.owner, fence=hold.fence)
        over = threading.Event()
        postman = threading.Thread(target=self._deliver, args=(over,), name="postman", daemon=True)
        duties = Duties(self.database, hold, self.waker, Lookout(self.silent_s, self.clock), self.clock)
        try:
            with Office(self.database, hold, over, self.lease_s):
                postman.start()
                while not self.stop.is_set() and not over.is_set():
                    duties.tick()
                    self.stop.wait(TICK_S)
        except ClaimLost as lost:
            log.warning("another steward has taken over", why=str(lost))
        finally:
            over.set()
            postman.join(POSTMAN_S)
            with self.database.write() as session:
                singletons.release(session, hold)

    def _deliver(self, over: threading.Event) -> None:
        """Messages, as long as this is the steward."""
        while not over.is_set():
            try:
                self.deliver(over)
            except Exception:
                log.exception("the postman failed; it starts again")
                over.wait(POSTMAN_S)


class Duties:
    """What the steward does at every tick."""

    def __init__(self, database: Database, hold: Hold, waker: Waker, lookout: Lookout, clock: Callable[[], float]) -> None:
        self._database, self._hold, self._waker, self._lookout, self._clock = database, hold, waker, lookout, clock
        self._tidied: float | None = None

    def tick(self) -> None:
        """Tell what has to be told, wake who has to be woken, and now and then tidy. ClaimLost: somebody else does."""
        try:
            self._look()
            if self._tidied is None or self._clock() - self._tidied >= TIDY_S:
                self._tidy()
                self._tidied = self._clock()
        except SQLAlchemyError as error:
            # It answers again some time, and the next tick sees what this one has missed.
            log.warning("database error", error=str(error))

    def _look(self) -> None:
        with self._database.read() as session:
            sight = self._lookout.look(session, datetime.now(UTC))
        if sight.alarms:
            # Once more, alone: what is told must be true at the moment that it is written.
            with self._database.write() as session:
                singletons.guard(session, self._hold)
                for alarm in self._lookout.look(session, datetime.now(UTC)).alarms:
                    alarm.tell(session)
        for host in sight.to_wake:
            self._waker.wake(host)

    def _tidy(self) -> None:
        with self._database.write() as session:
            singletons.guard(session, self._hold)
            workers.reap(session, DEAD_S)
            idempotency.forget_older(session, KEY_AGE)
