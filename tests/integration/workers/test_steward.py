"""The steward: alarms told once, workers woken, traces tidied, and one of two that does it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import structlog.testing
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from service.domain.errors import ClaimLost
from service.store import events, hosts, shifts, singletons, workers
from service.store.database import Database
from service.store.tables import HostRow, IdempotencyRow, utc_now
from service.wake import Waker
from tests.acceptance.service import wait_for
from tests.integration.workers.night import claim, submit
from workers import steward as module
from workers.alarms import STEWARD, Lookout
from workers.steward import Duties, Steward

SILENT_S = 60.0
PARKED = {"units": "systemd", "park": ["vllm.service"], "dead_man": 600.0, "window": "00:00-23:59"}


class Bell(Waker):
    """Notes who was woken."""

    def __init__(self) -> None:
        super().__init__()
        self.rung: list[str] = []

    def wake(self, host: str) -> None:
        self.rung.append(host)


class Watch:
    """The steward's duties with a clock that stands still unless told."""

    def __init__(self, database: Database) -> None:
        self.database, self.now, self.bell = database, 1000.0, Bell()
        with database.write() as session:
            session.execute(text("UPDATE singletons SET expires = 1"))
            hold = singletons.claim(session, STEWARD, "me", 3600.0)
        assert hold is not None
        self.duties = Duties(database, hold, self.bell, Lookout(SILENT_S, lambda: self.now), lambda: self.now)

    def tick(self, later_s: float = 0.0) -> list[str]:
        """Tick, so much later. Who was woken."""
        self.now += later_s
        self.bell.rung.clear()
        self.duties.tick()
        return list(self.bell.rung)

    def told(self, *kinds: str) -> list[dict[str, Any]]:
        """What was told of those kinds, in order."""
        with self.database.read() as session:
            return [{"type": event.type.value, **event.data} for event in events.since(session) if event.type.value in kinds]

    def beat(self, owner: str = "w:1", age_s: float = 0.0) -> None:
        with self.database.write() as session:
            workers.beat(session, hosts.by_name(session, "local").id or 0, owner, "1.0")
            session.execute(text(f"UPDATE workers SET seen = seen - {age_s} WHERE owner = '{owner}'"))  # noqa: S608 - ours


@pytest.fixture
def watch(database: Database) -> Watch:
    return Watch(database)


def run_out(database: Database) -> None:
    """The lease has run out."""
    with database.write() as session:
        session.execute(text("UPDATE hosts SET lease_expires = lease_expires - 100000"))


def test_a_worker_that_lives_and_does_nothing_is_woken_at_every_tick(watch: Watch, database: Database) -> None:
    watch.beat()
    assert watch.tick() == []
    submit(database, "x")
    assert watch.tick() == watch.tick() == ["local"]
    lease = claim(database)
    assert watch.tick() == []
    run_out(database)
    assert watch.tick() == ["local"]
    with database.write() as session:
        hosts.release(session, lease)
    watch.beat(age_s=SILENT_S + 1)
    assert watch.tick() == [], "nobody would hear it, and whoever starts looks first"


def test_a_lease_that_ran_out_is_told_of_once_and_so_is_the_return(watch: Watch, database: Database) -> None:
    submit(database, "x")
    claim(database, "w:1")
    watch.tick()
    run_out(database)
    for _ in range(3):
        watch.tick(5)
    assert [(one["type"], one["worker"]) for one in watch.told("worker.silent", "worker.back")] == [("worker.silent", "w:1")]
    claim(database, "w:2")
    watch.tick(5)
    watch.tick(5)
    told = watch.told("worker.silent", "worker.back")
    assert [(one["type"], one["worker"]) for one in told] == [("worker.silent", "w:1"), ("worker.back", "w:2")]


def test_work_without_any_worker_is_told_of_after_a_while(watch: Watch, database: Database) -> None:
    watch.tick(500)
    assert watch.told("worker.silent") == [], "nothing was to be done"
    submit(database, "x")
    watch.tick(1)
    watch.tick(SILENT_S - 2)
    assert watch.told("worker.silent") == []
    watch.tick(3)
    watch.tick(3)
    (told,) = watch.told("worker.silent")
    assert told["worker"] is None
    assert "no worker of it has been seen for 61 s" in told["why"]
    watch.beat()
    watch.tick(3)
    assert [one["worker"] for one in watch.told("worker.back")] == ["w:1"]


def test_an_idle_host_whose_worker_is_away_for_the_day_is_no_alarm(watch: Watch) -> None:
    watch.beat(age_s=4000)
    watch.tick(4000)
    watch.tick(4000)
    assert watch.told("worker.silent") == []


@pytest.fixture
def parked(database: Database) -> Callable[[], None]:
    """A shift that has parked production, handed over in order; calling it closes the shift."""
    with database.write() as session:
        hosts.register(session, "local", "local", PARKED)
    lease = claim(database, "w:1")
    with database.write() as session:
        shift = shifts.open_or_resume(session, lease)
        shifts.note(session, lease, shift.id or 0, phase="parked", parked={"parked_at": 1.0})
        hosts.release(session, lease)

    def close() -> None:
        again = claim(database, "w:2")
        with database.write() as session:
            shifts.close(session, again, shift.id or 0, "done")
            hosts.release(session, again)

    return close


def test_parked_production_that_nobody_comes_for_is_told_of_once(watch: Watch, database: Database, parked: Callable[[], None]) -> None:
    watch.beat()
    watch.tick()
    watch.tick(599)
    assert watch.told("production.not_restored") == []
    watch.tick(2)
    watch.tick(5)
    (told,) = watch.told("production.not_restored")
    assert (told["shift"], told["units"]) == (1, ["vllm.service"])
    assert "no worker has held the host for 10 minutes" in told["why"]
    with database.read() as session:
        row = shifts.get(session, 1)
        assert (row.phase, row.parked["parked_at"]) == ("parked", 1.0), "what the worker wrote is still there"
    another = Watch(database)
    another.tick()
    another.tick(700)
    assert len(watch.told("production.not_restored")) == 1, "a steward that starts anew tells it again"
    parked()
    another.tick(5000)
    assert len(watch.told("production.not_restored")) == 1


def test_a_host_that_is_held_again_in_time_is_no_alarm(watch: Watch, database: Database, parked: Callable[[], None]) -> None:
    del parked
    watch.tick()
    watch.tick(500)
    lease = claim(database, "w:2")
    watch.tick(200)
    with database.write() as session:
        hosts.release(session, lease)
    watch.tick(1)
    watch.tick(500)
    assert watch.told("production.not_restored") == []


def test_it_tidies_what_nobody_asks_for_any_more(watch: Watch, database: Database) -> None:
    watch.beat("dead", age_s=4000)
    watch.beat("silent", age_s=3000)
    with database.write() as session:
        for key, hours in (("old", 25), ("young", 23)):
            session.add(IdempotencyRow(key=key, body_hash="x", created_at=utc_now() - timedelta(hours=hours), status=201))
    watch.tick()
    with database.read() as session:
        assert [one.owner for one in workers.seen(session)] == ["silent"]
        assert session.get(IdempotencyRow, "old") is None
        assert session.get(IdempotencyRow, "young") is not None


def test_whoever_is_no_longer_the_steward_tells_nothing(watch: Watch, database: Database) -> None:
    submit(database, "x")
    claim(database, "w:1")
    watch.tick()
    run_out(database)
    with database.write() as session:
        session.execute(text("UPDATE singletons SET expires = 1"))
        assert singletons.claim(session, STEWARD, "another", 3600.0) is not None
    with pytest.raises(ClaimLost):
        watch.tick(5)
    assert watch.told("worker.silent") == []


# Whole stewards, in threads.


class Post:
    """Who delivers, and since when."""

    def __init__(self) -> None:
        self.at_work: list[str] = []

    def of(self, owner: str) -> Callable[[threading.Event], None]:
        def deliver(over: threading.Event) -> None:
            self.at_work.append(owner)
            over.wait(60)
            self.at_work.remove(owner)

        return deliver


Start = Callable[..., threading.Event]


@pytest.fixture
def start(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Start, Post]]:
    monkeypatch.setattr(module, "CLAIM_S", 0.1)
    monkeypatch.setattr(module, "TICK_S", 0.1)
    post, stops, threads = Post(), [], []

    def begin(owner: str, lease_s: float = 1.5) -> threading.Event:
        stop = threading.Event()
        steward = Steward(database, owner, SILENT_S, Bell(), post.of(owner), stop, lease_s)
        threads.append(threading.Thread(target=steward.run))
        threads[-1].start()
        stops.append(stop)
        return stop

    yield begin, post
    for stop in stops:
        stop.set()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def holder(database: Database) -> str | None:
    with database.read() as session:
        found = singletons.holder(session, STEWARD)
    return found.owner if found else None


def test_one_of_two_is_the_steward_and_the_other_follows_it(database: Database, start: tuple[Start, Post]) -> None:
    begin, post = start
    first = begin("a")
    wait_for(lambda: post.at_work == ["a"], 20, every=0.02)
    begin("b")
    first.set()
    wait_for(lambda: post.at_work == ["b"], 20, every=0.02)
    assert holder(database) == "b"


def test_one_whose_lease_was_taken_stops_delivering(database: Database, start: tuple[Start, Post]) -> None:
    begin, post = start
    begin("a")
    wait_for(lambda: post.at_work == ["a"], 20, every=0.02)
    with database.write() as session:
        session.execute(text("UPDATE singletons SET owner = 'c', token = 'x', expires = expires + 3600"))
    wait_for(lambda: post.at_work == [], 20, every=0.02)
    assert holder(database) == "c"


def test_it_outlives_the_database(start: tuple[Start, Post], monkeypatch: pytest.MonkeyPatch) -> None:
    begin, post = start
    begin("a", 1.0)
    wait_for(lambda: post.at_work == ["a"], 20, every=0.02)

    def away(*_: object, **__: object) -> None:
        raise OperationalError("x", {}, Exception("the server is gone"))

    with monkeypatch.context() as patched, structlog.testing.capture_logs():
        for name in ("heartbeat", "claim", "guard"):
            patched.setattr(singletons, name, away)
        wait_for(lambda: post.at_work == [], 20, every=0.02)
    wait_for(lambda: post.at_work == ["a"], 20, every=0.02)


def test_an_error_of_a_tick_is_told_and_survived(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> list[HostRow]:
        raise OperationalError("x", {}, Exception("locked"))

    with monkeypatch.context() as patched, structlog.testing.capture_logs() as told:
        patched.setattr(hosts, "every", fails)
        assert watch.tick() == []
    assert [entry["event"] for entry in told] == ["database error"]
