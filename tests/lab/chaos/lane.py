"""One installation with one host, that is struck again and again."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlmodel import col, select

from service.domain.events import EventType
from service.store.database import Database
from service.store.tables import EventRow, HostRow, ShiftRow, StepRow
from tests.acceptance.installation import Installation, worker_of
from tests.databases import PostgresServer, start_postgres
from tests.lab.chaos.faults import FAULTS
from tests.lab.chaos.judge import Judge, answered
from tests.lab.chaos.places import SHIFT, Place
from tests.lab.chaos.receiver import Receiver, receiving
from tests.lab.chaos.table import Strike
from tests.lab.fleet import OPEN, helper_onto, host_options
from tests.lab.host import LabHost, wait_for
from tests.redis import RedisServer

LEASE_S = 4.0
CLOSE_AFTER_S = 1.0
BENCH = {"max_tokens": 60, "concurrency": [1, 4], "repeat": 1, "warmup": 2}
NAMES = ("first", "second")
_ONE_AT_A_TIME = threading.Lock()
"""Migrations keep what they are at in globals."""


@dataclass
class Lane:
    """What a fault may strike, and what tells how far the work is."""

    installation: Installation
    host: LabHost
    postgres: PostgresServer
    redis: RedisServer
    receiver: Receiver
    database: Database
    lease_s: float = LEASE_S
    worker: str = ""
    """The name of the process that works on the host."""
    _usual: dict[str, float] = field(default_factory=dict)
    _shift: int = 0
    """The latest shift before the run that is on."""
    _tick: threading.Event = field(default_factory=threading.Event)

    # ---- one run ----

    def strike(self, fault: str, place: Place, fraction: float) -> Strike:
        """Two experiments, and a fault while the first one is at a place."""
        began = time.monotonic()
        judge = Judge(self.database, self.host, self.receiver, self.installation.said)
        self._shift = self._latest_shift()
        ids = [self._submit(name) for name in NAMES]
        place.reach(self, ids[0], fraction)
        FAULTS[fault](self)
        verdict = judge.verdict(dict(zip(ids, NAMES, strict=True)))
        return Strike(fault, place, time.monotonic() - began, verdict)

    def warm_up(self) -> None:
        """A night without any fault: it must be good, and tells how long everything takes."""
        judge = Judge(self.database, self.host, self.receiver, self.installation.said)
        one = self._submit(NAMES[0])
        verdict = judge.verdict({one: NAMES[0]})
        assert verdict.good, (verdict, self.installation.said())
        self._usual = self._durations(one)

    def _submit(self, name: str) -> int:
        engine = {"kind": "vllm", "model": "/srv/models/kimi", "served_model_name": "kimi", "env": {"TEST_RUN": str(time.monotonic_ns())}}
        spec = {"name": name, "host": self.host.name, "engine": engine, "bench": BENCH}
        return int(self.installation.client.submit(spec)["id"])

    # ---- how far it is ----

    def pause(self, seconds: float) -> None:
        """The moment of a fault is a time, and no condition."""
        self._tick.wait(seconds)

    def usual_s(self, at: str) -> float:
        """How long a step or a phase of the shift takes when nothing happens."""
        return self._usual[at]

    def arrived(self, one: int, at: str, seconds: float) -> None:
        """Wait until the experiment has begun that step, or its shift that phase."""
        begun = self._phase if at in SHIFT else lambda: self._begun(one, at)
        self.until(lambda: begun() in {at, True}, f"experiment {one} is at {at}", seconds)

    def fence(self) -> int:
        """It grows with every claim of the host."""
        with self.database.read() as session:
            return session.exec(select(HostRow.fence)).one()

    def until(self, look: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
        """Wait; the database may be away meanwhile."""
        wait_for(lambda: answered(look), seconds, lambda: f"{what}\n{self.installation.said()}", every=0.01)

    def _begun(self, one: int, step: str) -> bool:
        with self.database.read() as session:
            return session.exec(select(StepRow.id).where(StepRow.experiment_id == one, StepRow.name == step)).first() is not None

    def _phase(self) -> str:
        with self.database.read() as session:
            rows = session.exec(select(ShiftRow.phase).where(col(ShiftRow.id) > self._shift).order_by(col(ShiftRow.id).desc()))
            return rows.first() or ""

    def _latest_shift(self) -> int:
        with self.database.read() as session:
            return session.exec(select(ShiftRow.id).order_by(col(ShiftRow.id).desc())).first() or 0

    def _durations(self, one: int) -> dict[str, float]:
        with self.database.read() as session:
            steps = session.exec(select(StepRow).where(StepRow.experiment_id == one)).all()
            moments = {row.type: row.at for row in session.exec(select(EventRow).order_by(col(EventRow.id)))}
        took = {step.name: (step.finished_at - step.started_at).total_seconds() for step in steps if step.finished_at is not None}
        parked, ended = moments[EventType.PRODUCTION_PARKED], moments[EventType.EXPERIMENT_FINISHED]
        took[SHIFT[0]] = (parked - moments[EventType.SHIFT_OPENED]).total_seconds()
        took[SHIFT[1]] = (moments[EventType.PRODUCTION_RESTORED] - ended).total_seconds() - CLOSE_AFTER_S
        return took

    # ---- its processes ----

    def start_another_worker(self) -> None:
        """Besides the one that there is, which will not come back."""
        self.worker = f"worker-{time.monotonic_ns()}"
        self.installation.start_worker(self.host.name, self.worker)


@contextmanager
def open_lane(folder: Path, host: LabHost) -> Iterator[Lane]:
    """A lane whose host serves production, with everything started and one good night behind it. `host` has production installed."""
    with ExitStack() as stack:
        with _ONE_AT_A_TIME:
            postgres = start_postgres(durable=True)
        stack.callback(postgres.stop)
        redis = RedisServer(durable=True).start()
        stack.callback(redis.end)
        receiver = stack.enter_context(receiving())
        url = postgres.url(postgres.create())
        database = Database(url)
        stack.callback(database.close)
        environ = {**host.environment, "EXPCTL_LEASE_S": str(LEASE_S), "EXPCTL_NOTIFY_ALLOW": "127.0.0.1"}
        installation = Installation(folder, url, redis.url, environ)
        stack.callback(installation.end)
        lane = Lane(installation, host, postgres, redis, receiver, database, worker=worker_of(host.name))
        _begin(lane)
        lane.warm_up()
        yield lane


def _begin(lane: Lane) -> None:
    installation, host = lane.installation, lane.host
    installation.start_api()
    installation.start_steward()
    host.sim(LOAD_SECONDS="2")
    _good(installation, "host", "add", host.name, *host_options(host, "root", OPEN))
    installation.start_worker(host.name)
    answer = json.loads(_good(installation, "host", "install", host.name, "--json"))["answer"]
    helper_onto(host, answer, "root")
    _good(installation, "notify", "add", "all", "--kind", "webhook", "--url", lane.receiver.url, "--default")


def _good(installation: Installation, *argv: str) -> Any:
    done = installation.cli(*argv)
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}\n{installation.said()}"
    return done.stdout
