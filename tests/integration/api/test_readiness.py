"""What /readyz tells, to whom, and that it answers whatever hangs."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.api import health
from service.api.app import create_app
from service.domain.access import Scope
from service.settings import Settings
from service.store import hosts, migrate, singletons, workers
from service.store.database import Database
from tests.integration.api.service import Api, problem
from tests.integration.api.team import Team
from tests.redis import RedisServer

NOBODY = "redis://127.0.0.1:1/0"


@pytest.fixture
def peopled(database: Database) -> Database:
    """A host with a worker, and a steward."""
    with database.write() as session:
        row = hosts.register(session, "gpu0", "local", {})
        workers.beat(session, row.id or 0, "box:1", "1.0")
        assert singletons.claim(session, "steward", "box:2", 30.0)
    return database


def test_workers_and_steward_are_told_to_whoever_may_read(peopled: Database) -> None:
    team = Team(peopled)
    team.give("eve", Scope.READ)
    found = team.of("eve", "GET", "/readyz").json()
    [worker] = found["workers"]
    assert (worker["host"], worker["owner"], found["steward"]["owner"]) == ("gpu0", "box:1", "box:2")
    assert 0 <= worker["age_s"] < 20
    assert 5 < found["steward"]["lease_left_s"] <= 30
    anonymous = team.get("/readyz").json()
    assert (anonymous["ready"], anonymous["workers"], anonymous["steward"], anonymous["database_file"]) == (True, None, None, None)
    assert Api(peopled).get("/readyz").json()["workers"][0]["host"] == "gpu0"


def test_without_a_broker_it_is_not_used(database: Database) -> None:
    assert Api(database).get("/readyz").json()["broker"] == "not used"


@pytest.mark.parametrize(("url", "said"), [(NOBODY, "does not answer"), ("amqp://h", "not asked: only redis:// and rediss:// are known")])
def test_a_broker_that_is_away_is_told_and_leaves_the_service_ready(database: Database, url: str, said: str) -> None:
    app = create_app(database, loopback_only=True, settings=Settings(broker_url=url))
    answer = Api(database).ask("GET", "/readyz", app=app)
    assert (answer.status_code, answer.json()["ready"], answer.json()["broker"]) == (200, True, said)


def test_a_broker_that_answers(redis_server: RedisServer) -> None:
    assert health.ping(redis_server.url) == "ok"


@pytest.fixture
def deaf() -> Iterator[str]:
    """Takes every connection and never says a word."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(16)
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_what_hangs_is_not_waited_for(deaf: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "DATABASE_S", 0.3)
    monkeypatch.setattr(health, "BROKER_S", 0.2)
    database = Database(f"postgresql://u:secret@{deaf}/x?connect_timeout=1")
    app = create_app(database, settings=Settings(broker_url=f"redis://{deaf}/0"))
    began = time.monotonic()
    answer = Team(database).ask("GET", "/readyz", app=app)
    assert time.monotonic() - began < 5
    found: dict[str, Any] = answer.json()
    assert (answer.status_code, found["ready"], found["database"], found["broker"]) == (503, False, "does not answer", "does not answer")
    assert "secret" not in answer.text
    assert Team(database).ask("GET", "/healthz", app=app).status_code == 200
    database.close()


def test_a_database_that_is_gone_is_unready_and_everything_else_unavailable(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'none' / 'expctl.db'}")
    api = Api(database)
    assert api.get("/readyz").status_code == 503
    assert api.get("/readyz").json()["migration_head"] == migrate.head()
    for path in ("/v1/hosts", "/metrics"):
        problem(api.get(path), 503, "unavailable")


def test_whoever_comes_while_a_look_lasts_shares_it() -> None:
    import asyncio  # noqa: PLC0415

    begun: list[int] = []
    go = threading.Event()

    def look() -> str:
        begun.append(1)
        assert go.wait(10)
        return "seen"

    async def many() -> list[Any]:
        one = health.Look(look, 5.0)
        waiting = [asyncio.create_task(one.take()) for _ in range(20)]
        await asyncio.sleep(0)
        go.set()
        return await asyncio.gather(*waiting)

    assert asyncio.run(many()) == ["seen"] * 20
    assert len(begun) == 1
