"""One host's stretch of work: claim the host, park what serves, run what is due, give back, hand the host over."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from service.domain.events import EventType
from service.domain.host_config import HostConfig
from service.domain.reasons import RULES, Reason, ReasonClass
from service.domain.status import Outcome
from service.store import agenda, experiments, hosts, shifts
from service.store.hosts import Lease
from service.store.tables import ExperimentRow, HostRequestRow, utc_now
from workers.curfew import Curfew
from workers.deadman import DeadMan
from workers.experiment import Bench
from workers.heart import Heart
from workers.hosts.base import DeadManFired, HostError
from workers.production import NotParked, Production
from workers.reaching import Reach, headers_of
from workers.reappeared import reappeared
from workers.requests import Answer, Requests
from workers.runner import Ending
from workers.shiftbook import ShiftBook
from workers.steps.base import HandOver, ShiftOver
from workers.tidying import forget_units, remove_work_folders
from workers.worker import Worker

log = structlog.get_logger()

IDLE_POLL_S = 1.0
REHEARSAL = "a rehearsal"
ALARM_EVERY_S = 30.0
"""While production is brought back, a host that does not answer is waited for in pieces: the alarm must not wait with it."""
TRIP_AFTER = 3
TRIPPING = frozenset({ReasonClass.LOAD, ReasonClass.GPU, ReasonClass.INFRA})
BLOCKING = frozenset(
    {
        Reason.HELD_BY_OTHER_USER,
        Reason.HELD_BY_UNKNOWN_PROCESS,
        Reason.UNKILLABLE_PROCESS,
        Reason.GPU_LOST,
        Reason.GPU_HARDWARE_ERROR,
        Reason.DRIVER_LIBRARY_MISMATCH,
        Reason.PRODUCTION_STARTED_BY_HAND,
    }
)
"""What no other configuration will mend: the host needs a person, and the rest of the queue is spared."""


def run_shift(worker: Worker, host: str) -> bool:
    """Do everything that is due on a host. False where another worker holds it.

    Leaves early, units running, when asked to stop or when the claim is lost.
    """
    with worker.database.write() as session:
        lease = hosts.claim(session, host, worker.owner, worker.lease_s)
        config = HostConfig.model_validate(hosts.by_name(session, host).config)
    if lease is None:
        return False
    try:
        with (
            Heart(worker.database, lease, every_s=worker.heartbeat_s, lease_s=worker.lease_s) as heart,
            Reach(worker, lease, config) as reach,
            Reach(worker, lease, config) as other,
            DeadMan(worker.database, lease, other.impatient, config.dead_man) as dead_man,
        ):
            _Shift.begin(worker, lease, config, heart, reach, dead_man)
    except HandOver:
        log.info("handing over", host=host)
    finally:
        with worker.database.write() as session:
            hosts.release(session, lease)
    return True


@dataclass
class _Shift:
    """One open shift under one claim."""

    worker: Worker
    lease: Lease
    config: HostConfig
    reach: Reach
    dead_man: DeadMan
    book: ShiftBook
    bench: Bench
    asked: Requests
    _idle_at: float | None = None

    @classmethod
    def begin(cls, worker: Worker, lease: Lease, config: HostConfig, heart: Heart, reach: Reach, dead_man: DeadMan) -> None:
        """Answer what was asked, then work where there is something to do."""
        asked = Requests(worker.database, lease, config, worker.environ, reach)
        with worker.database.read() as session:
            found = shifts.current(session, lease.host_id)
        rehearsal = asked.answer_all(None if found is None or found.closing == REHEARSAL else "a shift is open")
        with worker.database.read() as session:
            todo = agenda.of(session, lease.host, datetime.now(UTC))
        if not (todo.shift_open or todo.active or todo.guests or todo.units or rehearsal):
            return
        with worker.database.write() as session:
            shift_id = shifts.open_or_resume(session, lease).id or 0
        curfew = Curfew(lease.host, dead_man if config.park else None)
        book = ShiftBook(worker.database, lease, heart, worker.stop, shift_id)
        bench = Bench(worker, lease, heart, config, reach, curfew)
        shift = cls(worker, lease, config, reach, dead_man, book, bench, asked)
        if rehearsal is not None:
            shift._rehearse(rehearsal)
        else:
            shift._run()

    def _run(self) -> None:
        while not self.worker.stop.is_set():
            self.book.check()
            why = self.book.closing()
            over = self._why_close() if why is None else None
            if over is not None:
                why = over.detail
                self._end_active(over)
            if why is not None:
                self._close(why)
                return
            self.asked.answer_all("a shift is open")
            row = self._next()
            if row is not None:
                self._judge(row, self.bench.work(row))

    def _rehearse(self, request: HostRequestRow) -> None:
        """Park and give back by daylight, to know that it works and how long it takes."""
        if self.book.closing() is None:
            # Decided before anything is stopped: whoever takes it up after us gives back, and runs nothing.
            self.book.decide_closing(REHEARSAL)
            self._park()
        if not self._close(REHEARSAL):
            return
        known = self.book.parked()
        away, after = known.get("away_s"), known.get("restored_after_s")
        steps = [
            {
                "name": "survey",
                "seconds": None,
                "detail": "; ".join(f"{unit['name']}: {unit['detail']}" for unit in known.get("units", [])),
            },
            {"name": "restore", "seconds": after, "detail": known.get("not_clean") or "every unit answered with a token"},
        ]
        failed = known.get("not_parked") or ("" if known.get("parked_at") else "it was cut before production was parked")
        error = {"error": failed, "remedy": f"see `expctl host show {self.lease.host}`"} if failed else {}
        self.asked.put(request, Answer(not failed, {"steps": steps, "downtime_s": away, **error}))

    # What to do next.

    def _next(self) -> ExperimentRow | None:
        """The next experiment; None where something else was done instead."""
        phase = self.book.phase() if self.config.park else None
        if phase == "parking":
            self._park()
            return None
        row = self._take(None if phase is None else phase == "open")
        if row is not None:
            return row
        if phase == "open":
            self._park_where_due()
        elif phase is None:
            self.book.decide_closing("nothing left to do")
        else:
            self._idle()
        return None

    def _take(self, guests: bool | None) -> ExperimentRow | None:
        with self.worker.database.write() as session:
            among = None
            if guests is False:
                # Nobody else writes before this one is taken, so the first of them is enough.
                among = agenda.fitting(session, hosts.by_name(session, self.lease.host), datetime.now(UTC))[:1]
            taken = experiments.take_next(session, self.lease, self.book.shift_id, guests=guests, among=among)
            if taken is not None and guests is False:
                shifts.note(session, self.lease, self.book.shift_id, idle_since=None)
        if taken is None:
            return None
        row, adopted = taken
        log.info("adopting" if adopted else "taking", host=self.lease.host, experiment=row.id)
        return row

    def _park_where_due(self) -> None:
        with self.worker.database.read() as session:
            due = agenda.of(session, self.lease.host, datetime.now(UTC)).units
        refused = self.bench.refuse_next(self.book.shift_id) if due else None
        if refused is not None:
            self._judge(*refused)
        elif due:
            self._park()
        else:
            self.book.decide_closing("nothing left to do")

    def _idle(self) -> None:
        """Parked, and nothing to run: production is given back unless more comes soon."""
        with self.worker.database.write() as session:
            row = shifts.get(session, self.book.shift_id)
            host = hosts.by_name(session, self.lease.host)
            if row.idle_since is None:
                shifts.note(session, self.lease, self.book.shift_id, idle_since=utc_now())
                self._idle_at = None
            guests = bool(experiments.due(session, self.lease.host_id, guests=True, limit=1))
            waiting = bool(experiments.due(session, self.lease.host_id, guests=False, limit=1))
            shut = host.paused or host.blocked is not None
        if shut:
            self.book.decide_closing("the host takes nothing new")
        elif guests:
            self.book.decide_closing("an endpoint waits for production")
        elif self._idle_s() >= self.config.close_after:
            self.book.decide_closing("what waits does not fit before the window closes" if waiting else "nothing left to do")
        else:
            self.worker.stop.wait(IDLE_POLL_S)

    def _idle_s(self) -> float:
        """Since there was nothing to run, as this worker has seen it: a clock that is set must not cost production a load."""
        now = time.monotonic()
        self._idle_at = now if self._idle_at is None else self._idle_at
        return now - self._idle_at

    # When to end.

    def _end_active(self, over: ShiftOver) -> None:
        """What a former worker left running ends with the shift, and for its reason: by day it would meet production."""
        with self.worker.database.read() as session:
            active = agenda.of(session, self.lease.host, datetime.now(UTC)).active
        row = self._take(None) if active else None
        if row is not None:
            self.bench.curfew.decided = over
            self._judge(row, self.bench.work(row))

    def _why_close(self) -> ShiftOver | None:
        if not self.config.park:
            return None
        phase = self.book.phase()
        with self.worker.database.read() as session:
            over = self.bench.curfew.over(session)
            open_again = agenda.may_open(hosts.by_name(session, self.lease.host), datetime.now(UTC))
        if over is not None:
            return over
        self.dead_man.watch(parked=phase in {"parking", "parked"})
        if phase == "parked":
            return self._serving_again()
        return None if open_again or phase == "parking" else self._only_guests()

    def _only_guests(self) -> ShiftOver | None:
        """Outside the window a shift goes on for those only that need production as it is."""
        with self.worker.database.read() as session:
            todo = agenda.of(session, self.lease.host, datetime.now(UTC))
        return None if todo.guests or todo.active else ShiftOver(Reason.WINDOW_CLOSED, "nothing left to do")

    def _serving_again(self) -> ShiftOver | None:
        over = reappeared(self.reach.production_host(self.book.check, None), self.config.park, self.book.parked().get("boot_id"))
        if over is not None and over.reason == Reason.HOST_REBOOTED:
            self.book.note(host_rebooted=over.detail)
        if over is not None and over.reason == Reason.PRODUCTION_STARTED_BY_HAND:
            self._block(over.detail)
        return over

    def _judge(self, row: ExperimentRow, ending: Ending | None) -> None:
        """What an ending means for the rest of the night."""
        if ending is None or self.config.units == "process":
            return
        if ending.outcome == Outcome.SUCCEEDED:
            self._count_failures(None)
        if ending.outcome != Outcome.FAILED or ending.reason is None:
            return
        if ending.reason in BLOCKING:
            self._block(f"{ending.reason}: {ending.detail}")
            self.book.decide_closing(f"experiment {row.id}: {ending.reason}")
        elif RULES[ending.reason].reason_class in TRIPPING and self._count_failures(row.engine_hash) >= TRIP_AFTER:
            why = f"{TRIP_AFTER} different configurations failed one after the other, the last with {ending.reason}"
            self._block(why)
            self.book.emit(EventType.SHIFT_TRIPPED, why=why, experiment=row.id)
            self.book.decide_closing(why)

    def _count_failures(self, engine_hash: str | None) -> int:
        """How many different configurations have failed in a row; None: one has succeeded."""
        with self.worker.database.write() as session:
            known = shifts.get(session, self.book.shift_id).failures
            now = [] if engine_hash is None else [*(known or []), engine_hash]
            if now != known:
                shifts.note(session, self.lease, self.book.shift_id, failures=now)
        return len(set(now))

    def _block(self, why: str) -> None:
        self.book.block(f"{why}; `expctl resume --host {self.lease.host}` when experiments may run again")

    # Production.

    def _production(self, patience_s: float | None) -> Production:
        host = self.reach.production_host(self.book.check, patience_s)
        return Production(host, self.config, self.reach.address, headers_of(self.config, self.worker.environ), self.book)

    def _park(self) -> None:
        self.dead_man.watch(parked=True)
        try:
            self._production(None).park()
        except DeadManFired as fired:
            # A worker died while it parked, and nobody came in time. That is mended, and no reason to keep the host shut.
            self.book.note(not_parked=fired.story)
            self.book.decide_closing(fired.story)
        except NotParked as failed:
            log.warning("production could not be parked", host=self.lease.host, why=str(failed))
            self._block(f"production could not be parked: {failed.reason}: {failed.detail}")
            why = f"production could not be parked: {failed.detail}"
            self.book.note(None if failed.touched else "open", not_parked=why)
            self.book.decide_closing(why)

    def _close(self, why: str) -> bool:
        """Whether it could be closed: not before production is back."""
        self.book.decide_closing(why)
        self.dead_man.watch(parked=False)
        if self.config.park and self.book.phase() != "open":
            try:
                self._production(ALARM_EVERY_S).restore()
            except HostError as error:
                # The shift stays open: it is a promise, and the next look keeps it.
                log.warning("production is not restored yet", host=self.lease.host, why=str(error))
                self.worker.stop.wait(IDLE_POLL_S)
                return False
        elif self.config.park:
            self._production(ALARM_EVERY_S).leave_as_it_is()
        self._tidy()
        with self.worker.database.write() as session:
            shifts.close(session, self.lease, self.book.shift_id, why)
        return True

    def _tidy(self) -> None:
        """Take away what nobody needs on the host any more."""
        under_systemd = self.config.units == "systemd"
        forget_units(self.worker.database, self.reach.host(self.book.check, None), all_ended=under_systemd)
        if under_systemd:
            host = self.reach.production_host(self.book.check, None)
            remove_work_folders(self.worker.database, self.lease, host, self.book.check)
