"""Whoever reads on after the last id it saw misses nothing."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait

from service.domain.events import EventType
from service.store import events
from service.store.database import Database


def emit(database: Database, actor: str) -> None:
    with database.write() as session:
        events.emit(session, EventType.QUEUE_PAUSED, actor)


def actors(database: Database, after: int = 0) -> list[str]:
    with database.read() as session:
        return [event.actor for event in events.since(session, after)]


def test_an_event_that_commits_later_has_the_greater_id(database: Database, threads: ThreadPoolExecutor) -> None:
    with database.write() as session:
        events.emit(session, EventType.QUEUE_PAUSED, "slow")
        session.flush()  # it has its id and is not committed
        quick = threads.submit(emit, database, "quick")
        assert not wait([quick], 0.3).done
        assert actors(database) == []
    quick.result(10)
    assert actors(database) == ["slow", "quick"]


def test_a_reader_that_follows_many_writers_sees_every_event_once(database: Database, threads: ThreadPoolExecutor) -> None:
    writers, each = 4, 25
    start = threading.Barrier(writers)

    def write(name: int) -> None:
        start.wait(10)
        for number in range(each):
            emit(database, f"{name}-{number}")

    running = [threads.submit(write, name) for name in range(writers)]
    seen: list[str] = []
    at = 0
    while True:
        ended = all(future.done() for future in running)
        with database.read() as session:
            found = events.since(session, at)
        seen += [event.actor for event in found]
        at = found[-1].id if found else at
        if ended and not found:
            break
    for future in running:
        future.result()
    assert sorted(seen) == sorted(f"{name}-{number}" for name in range(writers) for number in range(each))


def test_the_latest_is_where_a_reader_of_what_comes_begins(database: Database) -> None:
    with database.read() as session:
        assert events.latest(session) == 0
    emit(database, "before")
    with database.read() as session:
        latest = events.latest(session)
    emit(database, "after")
    assert actors(database, latest) == ["after"]


def test_an_event_leaves_nothing_behind_when_its_change_fails(database: Database) -> None:
    class ChangeFailedError(Exception):
        pass

    try:
        with database.write() as session:
            events.emit(session, EventType.QUEUE_PAUSED, "me")
            session.flush()
            raise ChangeFailedError  # noqa: TRY301 - the test's own
    except ChangeFailedError:
        pass
    assert actors(database) == []
