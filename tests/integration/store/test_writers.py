"""What may be relied on when transactions overlap, on each database: writers are alone, readers see one moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import pytest
from sqlalchemy import text
from sqlmodel import Session, select

from service.domain.errors import ClaimLost
from service.domain.events import EventType
from service.domain.reasons import Reason
from service.domain.spec import Spec
from service.domain.status import Outcome, Status
from service.store import events, experiments, hosts, shifts, submission
from service.store.database import Database, db_now
from service.store.hosts import Lease
from service.store.tables import HostRow

GRACE_S = 0.3
"""A transaction that does not end in this time waits for another one."""


def waits(future: Future[Any]) -> bool:
    return not wait([future], GRACE_S).done


def spec(name: str = "x", **more: object) -> Spec:
    return Spec.model_validate({"name": name, "host": "local", "engine": {"kind": "vllm", "model": "m"}, **more})


def submit(database: Database, one: Spec) -> int:
    with database.write() as session:
        return submission.submit(session, one, "me").id or 0


def claim(database: Database, owner: str = "a", lease_s: float = 60.0) -> Lease:
    with database.write() as session:
        lease = hosts.claim(session, "local", owner, lease_s)
    assert lease is not None
    return lease


def take(database: Database, lease: Lease) -> int | None:
    with database.write() as session:
        shift = shifts.open_or_resume(session, lease)
        taken = experiments.take_next(session, lease, shift.id or 0)
    return None if taken is None else taken[0].id


def take_over(session: Session, owner: str = "b") -> Lease:
    session.execute(text("UPDATE hosts SET lease_expires = lease_expires - 100000"))
    lease = hosts.claim(session, "local", owner)
    assert lease is not None
    return lease


def write(database: Database, change: Callable[[Session], object]) -> None:
    with database.write() as session:
        change(session)


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize(
    "change",
    [
        hosts.heartbeat,
        hosts.guard,
        lambda session, lease: experiments.note_progress(session, lease, 1, {"by": "a"}),
        lambda session, lease: experiments.finish(session, lease, 1, Outcome.SUCCEEDED, None, "", ""),
    ],
    ids=["heartbeat", "guard", "progress", "finish"],
)
def test_a_write_that_waited_for_a_takeover_is_refused(
    database: Database, threads: ThreadPoolExecutor, change: Callable[[Session, Lease], object]
) -> None:
    submit(database, spec())
    old = claim(database)
    take(database, old)
    with database.write() as session:
        take_over(session)
        late = threads.submit(write, database, lambda session: change(session, old))
        assert waits(late)
    with pytest.raises(ClaimLost):
        late.result(10)
    with database.read() as session:
        row = experiments.get(session, 1)
        assert (row.status, row.progress) == (Status.RUNNING, {})


@pytest.mark.usefixtures("host")
def test_a_worker_that_keeps_writing_is_cut_off_at_the_takeover(database: Database, threads: ThreadPoolExecutor) -> None:
    submit(database, spec())
    old = claim(database)
    take(database, old)
    wrote = threading.Event()

    def keep_writing() -> None:
        for number in range(100_000):
            with database.write() as session:
                experiments.note_progress(session, old, 1, {"by": "a", "n": number})
            wrote.set()

    writer = threads.submit(keep_writing)
    assert wrote.wait(10)
    with database.write() as session:
        new = take_over(session)
    assert take(database, new) == 1
    write(database, lambda session: experiments.note_progress(session, new, 1, {"by": "b"}))
    with pytest.raises(ClaimLost):
        writer.result(10)
    with database.read() as session:
        assert experiments.get(session, 1).progress == {"by": "b"}


@pytest.mark.usefixtures("host")
def test_a_lease_runs_out_by_the_clock_of_the_database(database: Database) -> None:
    claim(database, "a", 0.4)
    tick, taken = threading.Event(), None
    for _ in range(500):
        with database.write() as session:
            before = session.exec(select(db_now())).one()
            expires = session.exec(select(HostRow.lease_expires)).one()
            taken = hosts.claim(session, "local", "b")
            after = session.exec(select(db_now())).one()
        assert expires is not None
        if taken is not None:
            assert after >= expires
            break
        assert before <= expires
        tick.wait(0.01)
    assert taken is not None


@pytest.mark.usefixtures("host")
def test_a_heartbeat_counts_from_the_clock_of_the_database(database: Database) -> None:
    lease = claim(database, lease_s=1.0)
    with database.write() as session:
        hosts.heartbeat(session, lease, 60.0)
        left = session.exec(select(HostRow.lease_expires - db_now())).one()
    assert 50 < left <= 60


@pytest.mark.usefixtures("host")
def test_the_clock_goes_on_inside_a_transaction(database: Database) -> None:
    lease, tick = claim(database, lease_s=0.3), threading.Event()

    def guarded(session: Session) -> bool:
        tick.wait(0.01)
        try:
            hosts.guard(session, lease)
        except ClaimLost:
            return False
        return True

    with database.write() as session:
        assert guarded(session)
        assert not all(guarded(session) for _ in range(500))


@pytest.mark.usefixtures("host")
def test_a_cancel_and_a_start_do_not_cross(database: Database, threads: ThreadPoolExecutor) -> None:
    submit(database, spec())
    lease = claim(database)
    with database.write() as session:
        assert experiments.get(session, 1).status == Status.QUEUED
        start = threads.submit(take, database, lease)
        assert waits(start)
        experiments.cancel(session, 1, "me")
    assert start.result(10) is None
    with database.read() as session:
        assert experiments.get(session, 1).outcome == Outcome.CANCELLED


@pytest.mark.usefixtures("host")
def test_what_comes_to_wait_for_an_experiment_while_it_fails_ends_with_it(database: Database, threads: ThreadPoolExecutor) -> None:
    submit(database, spec("first"))
    lease = claim(database)
    take(database, lease)

    def fail(session: Session) -> None:
        experiments.finish(session, lease, 1, Outcome.FAILED, Reason.ENGINE_DEAD, "", "")

    with database.write() as session:
        submission.submit(session, spec("second", after=["first"]), "me")
        end = threads.submit(write, database, fail)
        assert waits(end)
    end.result(10)
    with database.read() as session:
        row = experiments.get(session, 2)
        assert (row.status, row.reason) == (Status.FINISHED, Reason.DEPENDENCY_FAILED)


def test_writers_that_touch_rows_in_opposite_orders_both_commit(database: Database, threads: ThreadPoolExecutor) -> None:
    with database.write() as session:
        for name in "ab":
            hosts.register(session, name, "local", {})
    touched = threading.Event()

    def touch(session: Session, name: str) -> None:
        events.emit(session, EventType.QUEUE_PAUSED, "me", host=name)
        session.execute(text("UPDATE hosts SET fence = fence + 1 WHERE name = :name"), {"name": name})

    def backward(session: Session) -> None:
        touch(session, "b")
        touched.set()
        touch(session, "a")

    with database.write() as session:
        touch(session, "a")
        other = threads.submit(write, database, backward)
        touched.wait(GRACE_S)
        touch(session, "b")
    other.result(10)
    with database.read() as session:
        assert [row.fence for row in hosts.every(session)] == [2, 2]
        assert [event.host for event in events.since(session)] == ["a", "b", "b", "a"]


def test_two_processes_may_register_the_same_host_at_once(database: Database, threads: ThreadPoolExecutor) -> None:
    with database.write() as session:
        hosts.register(session, "local", "local", {"experiment_port": 1})
        other = threads.submit(write, database, lambda session: hosts.register(session, "local", "local", {"experiment_port": 2}))
        assert waits(other)
    other.result(10)
    with database.read() as session:
        assert [row.config for row in hosts.every(session)] == [{"experiment_port": 2}]


def test_a_reader_sees_one_moment_and_keeps_no_writer_waiting(database: Database, threads: ThreadPoolExecutor) -> None:
    with database.read() as session:
        assert hosts.every(session) == []
        threads.submit(write, database, lambda session: hosts.register(session, "late", "local", {})).result(10)
        assert hosts.every(session) == []
    with database.read() as session:
        assert [row.name for row in hosts.every(session)] == ["late"]
