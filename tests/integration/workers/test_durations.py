"""What is written down of how long things took, and what is not."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from sqlmodel import select

from service.domain.events import EventType
from service.domain.measurement import RequestResult
from service.domain.status import StepName
from service.store import durations, events, hosts, shifts
from service.store.database import Database
from service.store.tables import BenchPhaseRow, DurationRow, StepRow, utc_now
from tests.integration.workers.night import claim, request, submit, summary, take, take_over
from workers import loadphases
from workers.heart import Heart
from workers.recorder import StoreRecorder
from workers.shiftbook import ShiftBook

BENCH = {"concurrency": [1], "repeat": 3, "warmup": 3}


class Rig:
    """An experiment at work, whose time is told and not waited for."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.id = submit(database, bench=BENCH)
        self.lease = claim(database)
        take(database, self.lease)
        self.recorder = StoreRecorder(database, self.lease, Heart(database, self.lease), threading.Event(), self.id, 1)

    def next_worker(self) -> None:
        self.lease = take_over(self.database)
        self.recorder = StoreRecorder(self.database, self.lease, Heart(self.database, self.lease), threading.Event(), self.id, 1)

    def earlier(self, seconds: float) -> None:
        """Let the step that was begun last have begun before, and what was seen in it too."""
        with self.database.write() as session:
            row = session.exec(select(StepRow).order_by(StepRow.id.desc())).first()  # type: ignore[union-attr]
            assert row is not None
            row.started_at -= timedelta(seconds=seconds)
            for phase in session.exec(select(BenchPhaseRow)):
                phase.started_at -= timedelta(seconds=seconds)

    def go(self, name: StepName, seconds: float = 10.0) -> None:
        self.recorder.begin(name)
        self.earlier(seconds)
        self.recorder.end()

    def outage(self) -> None:
        with self.database.write() as session:
            for kind in (EventType.HOST_UNREACHABLE, EventType.HOST_RECOVERED):
                events.emit(session, kind, "worker", host="local")

    def took(self) -> dict[str, float]:
        with self.database.read() as session:
            # The machine's own seconds are not what is tested.
            return {row.part: 5.0 * round(row.seconds / 5) for row in session.exec(select(DurationRow))}


@pytest.fixture
def rig(database: Database) -> Rig:
    return Rig(database)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets how many seconds ago it is for who watches a load."""

    def set_to(seconds_ago: float) -> None:
        moment = utc_now() - timedelta(seconds=seconds_ago)
        monkeypatch.setattr(loadphases, "utc_now", lambda: moment)

    return set_to


def test_every_step_and_their_sums(rig: Rig) -> None:
    for number, name in enumerate((StepName.CLEAR, StepName.LAUNCH, StepName.LOAD), 1):
        rig.go(name, 10.0 * number)
    assert rig.took() == {"clear": 10.0, "launch": 20.0, "load": 30.0, "ready": 60.0}
    with rig.database.read() as session:
        row = session.exec(select(DurationRow)).first()
    assert row is not None
    assert (row.engine_kind, row.served_model, row.repeat, len(row.engine_hash), row.bench_hash) == ("vllm", "m", None, 16, "")


def test_a_load_s_phases_from_change_to_change(rig: Rig, at: Any) -> None:
    """What comes before the first line belongs to the engine's start; a silent phase lasts until another one begins."""
    rig.recorder.begin(StepName.LOAD)
    for ago, phase, done in (
        (90, "weights_loading", 1),
        (60, "weights_loading", 64),
        (40, "torch_compile", None),
        (15, "api_startup", None),
    ):
        at(ago)
        rig.recorder.progress({"phase": phase, "done": done}, event="load")
    rig.earlier(100)
    rig.recorder.end()
    assert rig.took() == {
        "load": 100.0, "load:engine_init": 10.0, "load:weights_loading": 50.0, "load:torch_compile": 25.0, "load:api_startup": 15.0,
    }  # fmt: skip


def test_an_adopted_load_counts_and_what_nobody_saw_does_not(rig: Rig, at: Any) -> None:
    """The compile began while no worker was there: neither its length nor that of the weights is known."""
    rig.recorder.begin(StepName.LOAD)
    at(90)
    rig.recorder.progress({"phase": "weights_loading"}, event="load")
    rig.next_worker()
    rig.recorder.begin(StepName.LOAD)
    at(40)
    rig.recorder.progress({"phase": "torch_compile"}, event="load")
    rig.recorder._phases._blind_until = 0.0
    at(15)
    rig.recorder.progress({"phase": "api_startup"}, event="load")
    rig.earlier(100)
    rig.recorder.end()
    assert rig.took() == {"load": 100.0, "load:engine_init": 10.0, "load:api_startup": 15.0}


@pytest.mark.parametrize("step", [StepName.CLEAR, StepName.LAUNCH, StepName.WARM, StepName.COLLECT])
def test_a_step_that_is_done_again_does_not_count(rig: Rig, step: StepName) -> None:
    rig.recorder.begin(step)
    rig.next_worker()
    rig.go(step)
    assert rig.took() == {}


def test_what_went_through_an_outage_does_not_count(rig: Rig) -> None:
    rig.go(StepName.CLEAR)
    rig.recorder.begin(StepName.LAUNCH)
    rig.outage()
    rig.recorder.end()
    rig.go(StepName.LOAD, 0.0)
    assert rig.took().keys() == {"clear", "load"}, "and so their sum is not known"


def test_a_phase_that_began_in_an_outage_does_not_count(rig: Rig) -> None:
    rig.recorder.begin(StepName.LOAD)
    rig.outage()
    rig.recorder.progress({"phase": "weights_loading"}, event="load")
    rig.recorder.end()
    assert rig.took() == {}


def warm(rig: Rig) -> None:
    phase = rig.recorder.begin_phase("first_request", 1)
    rig.recorder.add_request(phase, RequestResult(prompt="code", repeat=0, ok=True, e2e_s=30.0))
    rig.earlier(50)
    rig.recorder.end_phase(phase, None, None)


def test_the_first_request_and_the_warm_up_are_parts_of_their_own(rig: Rig) -> None:
    rig.recorder.begin(StepName.WARM)
    warm(rig)
    rig.recorder.end()
    assert rig.took() == {"warm": 50.0, "bench:first_request": 30.0, "bench:warmup": 20.0}
    with rig.database.read() as session:
        repeats = {row.part: row.repeat for row in session.exec(select(DurationRow))}
    assert repeats == {"warm": 3, "bench:first_request": None, "bench:warmup": 2}


def test_a_second_first_request_is_none(rig: Rig) -> None:
    rig.recorder.begin(StepName.WARM)
    rig.recorder.begin_phase("first_request", 1)
    rig.next_worker()
    rig.recorder.begin(StepName.WARM)
    warm(rig)
    rig.recorder.end()
    assert rig.took() == {}


def measure(rig: Rig, failed: int = 0) -> None:
    phase = rig.recorder.begin_phase("measured", 1)
    rig.recorder.add_request(phase, request(ok=not failed))
    rig.earlier(50)
    rig.recorder.end_phase(phase, summary().model_copy(update={"failed": failed}), None)


def test_a_level_and_its_step(rig: Rig) -> None:
    rig.recorder.begin(StepName.MEASURE)
    measure(rig)
    rig.recorder.end()
    assert rig.took() == {"measure": 50.0, "bench:1": 50.0}


def test_a_level_that_was_cut_counts_once_it_was_measured_whole(rig: Rig) -> None:
    rig.recorder.begin(StepName.MEASURE)
    rig.recorder.begin_phase("measured", 1)
    rig.next_worker()
    rig.recorder.begin(StepName.MEASURE)
    measure(rig)
    rig.recorder.end()
    assert rig.took() == {"bench:1": 50.0}, "the step was begun twice"


def test_a_level_with_failed_requests_does_not_count(rig: Rig) -> None:
    rig.recorder.begin(StepName.MEASURE)
    measure(rig, failed=1)
    rig.recorder.end()
    assert rig.took() == {}


def book(rig: Rig) -> ShiftBook:
    with rig.database.write() as session:
        shift = shifts.open_or_resume(session, rig.lease).id or 0
    return ShiftBook(rig.database, rig.lease, Heart(rig.database, rig.lease), threading.Event(), shift)


def test_parking_and_restoring(rig: Rig) -> None:
    written = book(rig)
    written.note("parking", units=[])
    written.note(armed=True)
    written.note("parked", parked_at=1.0)
    written.note("restoring", restoring_since=2.0)
    written.note("restoring", restoring_since=2.0)
    written.note(restored_at=3.0)
    assert rig.took().keys() == {"park", "restore"}


def test_what_another_worker_had_begun_to_restore_does_not_count(rig: Rig) -> None:
    book(rig).note("restoring", restoring_since=2.0)
    second = book(rig)
    second.note("restoring", restoring_since=2.0)
    second.note(restored_at=3.0)
    assert rig.took() == {}


def test_a_shift_s_outage(rig: Rig) -> None:
    with rig.database.write() as session:
        before = events.latest(session)
    rig.outage()
    with rig.database.write() as session:
        host_id = hosts.by_name(session, "local").id or 0
        durations.of_shift(session, host_id, "local", "park", 5.0, before)
        durations.of_shift(session, host_id, "local", "restore", 5.0, events.latest(session))
    assert rig.took() == {"restore": 5.0}
