from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from service.store import hosts
from service.store.database import Database
from service.store.hosts import Lease
from tests.integration.workers.night import claim, submit, take, take_over
from workers import heart as module
from workers.heart import WEDGED_S, Heart

PATIENCE_S = 20.0


class Beats:
    """Lets a test wait for the next heartbeat."""

    def __init__(self) -> None:
        self.count = 0
        self.failures: list[Exception] = []
        self.changed = threading.Condition()

    def __call__(self, session: Any, lease: Lease, lease_s: float) -> None:
        try:
            if self.failures:
                raise self.failures.pop(0)
            hosts.heartbeat(session, lease, lease_s)
        finally:
            with self.changed:
                self.count += 1
                self.changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.count >= count, PATIENCE_S), "the heart does not beat"


@pytest.fixture
def beats(monkeypatch: pytest.MonkeyPatch) -> Iterator[Beats]:
    made = Beats()
    monkeypatch.setattr(module, "hosts", SimpleNamespace(heartbeat=made))
    return made


@pytest.fixture
def lease(database: Database) -> Lease:
    submit(database)
    made = claim(database)
    take(database, made)
    return made


def expires(database: Database) -> float:
    with database.read() as session:
        return hosts.by_name(session, "local").lease_expires or 0.0


def ended(heart: Heart) -> bool:
    heart._thread.join(PATIENCE_S)
    heart._thread.join(PATIENCE_S)
    return not heart._thread.is_alive()


def test_it_beats_until_its_holder_is_done(database: Database, lease: Lease, beats: Beats) -> None:
    before = expires(database)
    with Heart(database, lease, every_s=0.01, lease_s=5000.0) as heart:
        beats.wait_for(2)
    assert expires(database) > before + 4000
    assert ended(heart)
    assert not heart.lost.is_set()


def test_it_tells_that_the_lease_is_somebody_elses(database: Database, lease: Lease, beats: Beats) -> None:
    with Heart(database, lease, every_s=0.01) as heart:
        beats.wait_for(1)
        other = take_over(database)
        assert heart.lost.wait(PATIENCE_S)
        assert ended(heart), "it beats no more"
    with database.read() as session:
        assert hosts.holds(session, other)


def test_a_database_that_does_not_answer_is_tried_again(database: Database, lease: Lease, beats: Beats) -> None:
    beats.failures = [OperationalError("UPDATE", {}, Exception("away")), OperationalError("UPDATE", {}, Exception("away"))]
    with Heart(database, lease, every_s=0.01, lease_s=5000.0) as heart:
        beats.wait_for(3)
        assert not heart.lost.is_set()
    assert expires(database) > 4000


def test_a_wedged_worker_loses_its_lease(database: Database, lease: Lease, beats: Beats, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with Heart(database, lease, every_s=0.01) as heart:
        now[0] = WEDGED_S - 1
        heart.tick()
        now[0] = 2 * WEDGED_S - 1  # as long as allowed since the tick
        beats.wait_for(beats.count + 2)
        assert heart._thread.is_alive()
        now[0] = 2 * WEDGED_S
        assert ended(heart)
        assert not heart.lost.is_set(), "nobody has taken it yet"
