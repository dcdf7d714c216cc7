"""A host in memory, an engine that serves at once, a load client that answers at once; the store is real."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from sqlmodel import select

from service.domain.measurement import Distribution, PhaseResult, PhaseSummary, RequestResult
from service.domain.spec import Spec
from service.domain.status import Status
from service.store import experiments, hosts, shifts, submission
from service.store.database import Database
from service.store.hosts import Lease
from service.store.tables import ExperimentRow, HostRow, metadata
from workers import experiment, reaching, recorder, shift
from workers.bench.run import PhaseRun
from workers.hosts.base import UnitDefinition, UnitState
from workers.hosts.fake import FakeHost
from workers.steps import measure
from workers.steps.fake import FakeClock, FakeEngine
from workers.worker import Worker

OTHER = "another worker"


def request(prompt: str = "code", *, ok: bool = True, **more: Any) -> RequestResult:
    return RequestResult(prompt=prompt, repeat=0, ok=ok, reason=None if ok else "truncated_stream", **more)


def summary(requests: int = 1) -> PhaseSummary:
    none = Distribution()
    return PhaseSummary(
        requests=requests, failed=0, valid=True, duration_s=1.0, output_tokens=None, output_tps=None,
        ttft_ms=none, tpot_ms=none, itl_ms=none, e2e_ms=none, tps=none,
    )  # fmt: skip


def submit(database: Database, name: str = "x", **more: Any) -> int:
    spec = {"name": name, "engine": {"kind": "vllm", "model": "m"}, "bench": {"concurrency": [1], "repeat": 1, "warmup": 0}, **more}
    with database.write() as session:
        return submission.submit(session, Spec.model_validate(spec), "me").id or 0


def submit_command(database: Database, name: str) -> int:
    spec = {"name": name, "engine": {"kind": "command", "run": ["/bin/true"]}}
    with database.write() as session:
        return submission.submit(session, Spec.model_validate(spec), "me").id or 0


def read(database: Database, experiment_id: int) -> ExperimentRow:
    with database.read() as session:
        return experiments.get(session, experiment_id)


def claim(database: Database, owner: str = "first") -> Lease:
    with database.write() as session:
        lease = hosts.claim(session, "local", owner)
    assert lease is not None
    return lease


def take(database: Database, lease: Lease) -> ExperimentRow:
    with database.write() as session:
        opened = shifts.open_or_resume(session, lease)
        taken = experiments.take_next(session, lease, opened.id or 0)
    assert taken is not None
    return taken[0]


def take_over(database: Database) -> Lease:
    """The lease ran out, and another worker has claimed the host and adopted what was active."""
    # In one transaction: between two, the holder's heartbeat would revive its lease.
    with database.write() as session:
        session.execute(update(HostRow).values(lease_expires=1.0))
        lease = hosts.claim(session, "local", OTHER)
    assert lease is not None
    take(database, lease)
    return lease


def everything(database: Database) -> dict[str, list[Any]]:
    """Every row of every table."""
    with database.engine.connect() as connection:
        return {table.name: [tuple(row) for row in connection.execute(table.select())] for table in metadata.sorted_tables}


@dataclass
class ServingHost(FakeHost):
    """A unit listens as soon as it runs. `scripts`: what happens at its next starts, by its name."""

    port: int = 8001
    scripts: dict[str, list[Callable[[], object]]] = field(default_factory=dict)

    def start_unit(self, definition: UnitDefinition) -> UnitState:
        state = super().start_unit(definition)
        waiting = self.scripts.get(definition.name)
        if waiting:
            waiting.pop(0)()
        else:
            self.listen(definition.name, self.port)
        return self.unit(definition.name) if state else state

    def die(self, name: str, *lines: str) -> Callable[[], None]:
        def act() -> None:
            self.say(name, *lines)
            self.end(name, exit_status=1)

        return act

    def alive(self) -> list[str]:
        return [name for name, state in self.states.items() if state.phase == "active"]


class Night:
    """One host and its workers."""

    def __init__(self, database: Database, data_dir: Path) -> None:
        self.database, self.data_dir = database, data_dir
        self.host, self.engine, self.clock = ServingHost(), FakeEngine(), FakeClock()
        self.stop = threading.Event()
        self.measured: list[str] = []
        self.meanwhile: Callable[[Spec, Callable[[], bool]], None] = lambda _spec, _look: None
        """Happens while a level is measured; it may look for cause to stop."""

    def work(self, owner: str = "first") -> bool:
        return shift.run_shift(Worker(self.database, owner, self.data_dir, {}, self.stop), "local")

    def work_through(self) -> None:
        """Shift after shift, with the time until a retry skipped, until nothing waits any more."""
        while True:
            self.work()
            with self.database.write() as session:
                waiting = session.exec(select(ExperimentRow).where(ExperimentRow.status == Status.QUEUED)).all()
                for row in waiting:
                    row.not_before = None
                    session.add(row)
            if not waiting:
                return

    def make_engine(self, spec: Spec, defaults: Any, environ: Any, base: Any) -> FakeEngine:
        del defaults, environ, base
        self.spec = spec
        return self.engine

    def phase(self, target: Any, bench: Any, level: int, *, on_request: Any, should_stop: Any, counters: Any, **_more: Any) -> PhaseRun:
        del target, bench, counters
        self.measured.append(self.spec.name)
        self.meanwhile(self.spec, should_stop)
        on_request(request(tps=50.0))
        return PhaseRun(PhaseResult(concurrency=level, requests=[request(tps=50.0)], summary=summary()), 1.0)


def install(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "make_local_host", lambda *_: night.host)
    monkeypatch.setattr(experiment, "make_engine", night.make_engine)
    monkeypatch.setattr(experiment, "SystemClock", lambda _stop: night.clock)
    monkeypatch.setattr(measure, "run_phase_blocking", night.phase)
    monkeypatch.setattr(recorder, "STATUS_EVERY_S", 0.0)
