"""Whoever makes work due through the API has the host's worker woken: after the commit, and only after a commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import func
from sqlmodel import select

from service.api.app import create_app
from service.domain.events import EventType
from service.store import events, hosts
from service.store.database import Database
from service.store.tables import ExperimentRow
from service.wake import Waker
from tests.integration.api.service import Api, spec


class Bell(Waker):
    """Notes who was woken, and what another session sees of the queue at that moment."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.database = database
        self.rung: list[tuple[str, int]] = []

    def wake(self, host: str) -> None:
        with self.database.read() as session:
            self.rung.append((host, session.exec(select(func.count()).select_from(ExperimentRow)).one()))

    def take(self) -> list[str]:
        """Who was woken since the last time."""
        rung, self.rung = self.rung, []
        return [host for host, _ in rung]


@pytest.fixture
def bell(database: Database) -> Bell:
    return Bell(database)


@pytest.fixture
def woken(api: Api, bell: Bell) -> Api:
    with api.database.write() as session:
        hosts.register(session, "gpu-1", "local", {"simulated": True})
    api.app = create_app(api.database, loopback_only=True, waker=bell)
    return api


def test_a_submission_wakes_its_host_once_it_can_be_seen(woken: Api, bell: Bell) -> None:
    woken.submit()
    assert bell.rung == [("local", 1)]
    assert woken.post("/v1/experiments", [spec(host="gpu-1"), spec(host="local"), spec(host="gpu-1")]).status_code == 201
    assert bell.rung[1:] == [("gpu-1", 4), ("local", 4)]


def test_what_is_refused_wakes_nobody(woken: Api, bell: Bell) -> None:
    assert woken.post("/v1/experiments", [spec(), spec(host="nowhere")]).status_code == 422
    assert woken.post("/v1/experiments/77/cancel").status_code == 404
    assert bell.rung == []
    woken.submit()
    assert bell.take() == ["local"]


Call = Callable[[Api], int]


@pytest.mark.parametrize(
    "call",
    [
        lambda api: api.post("/v1/experiments/1/release").status_code,
        lambda api: api.ask("PATCH", "/v1/experiments/1", json={"first": True}).status_code,
        lambda api: api.post("/v1/experiments/1/cancel").status_code,
        lambda api: api.post("/v1/hosts/local/resume").status_code,
        lambda api: api.post("/v1/hosts/local/check").status_code,
        lambda api: api.post("/v1/hosts", {"name": "local", "close_after": "1s"}).status_code,
    ],
)
def test_whatever_makes_work_due_wakes(woken: Api, bell: Bell, call: Call) -> None:
    woken.submit()
    woken.post("/v1/experiments/1/hold")
    woken.post("/v1/hosts/local/pause")
    bell.take()
    assert call(woken) in {200, 201, 202}
    assert bell.take() == ["local"]


def test_a_read_wakes_nobody(woken: Api, bell: Bell) -> None:
    woken.submit()
    bell.take()
    assert woken.get("/v1/experiments").status_code == 200
    assert bell.rung == []


@pytest.fixture
def held_up(api: Api) -> Iterator[threading.Event]:
    """A broker that keeps whoever publishes waiting, until the event is set."""
    free = threading.Event()

    class HeldUp(Waker):
        def _publish(self, found: list[str]) -> None:
            del found
            free.wait(30)

    waker = HeldUp("redis://127.0.0.1:1/0")
    api.app = create_app(api.database, loopback_only=True, waker=waker)
    yield free
    free.set()
    waker.close()


def test_a_broker_that_hangs_delays_no_answer(api: Api, held_up: threading.Event) -> None:
    for number in (1, 2, 3):
        assert api.submit()["id"] == number
    assert not held_up.is_set()


def test_what_was_written_and_taken_back_is_not_told(bell: Bell, woken: Api) -> None:
    with woken.database.writers() as session:
        events.emit(session, EventType.HOST_CHANGED, "me", host="gpu-1")
        session.flush()
        session.rollback()
        events.emit(session, EventType.HOST_CHANGED, "me", host="local")
        session.commit()
    assert bell.take() == ["local"]
