"""Who works, and who is the only one of its kind: two small tables with the database's clock."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from service.domain.errors import ClaimLost
from service.store import hosts, singletons, workers
from service.store.database import Database
from service.store.singletons import Hold


def claim(database: Database, owner: str) -> Hold | None:
    with database.write() as session:
        return singletons.claim(session, "steward", owner, 15.0)


def held(database: Database, owner: str) -> Hold:
    found = claim(database, owner)
    assert found is not None
    return found


def age(database: Database, table: str, seconds: float) -> None:
    column = {"singletons": "expires", "workers": "seen"}[table]
    with database.write() as session:
        session.execute(text(f"UPDATE {table} SET {column} = {column} - {seconds}"))  # noqa: S608 - fixed texts


def test_there_is_one_until_it_lets_go(database: Database) -> None:
    first = held(database, "a")
    assert claim(database, "b") is None
    with database.write() as session:
        singletons.release(session, first)
    assert held(database, "b").fence == first.fence + 1


def test_another_kind_is_another_lease(database: Database) -> None:
    held(database, "a")
    with database.write() as session:
        assert singletons.claim(session, "other", "b", 15.0) is not None


def test_whose_lease_has_run_out_can_write_nothing_and_takes_nothing_back(database: Database) -> None:
    old = held(database, "a")
    age(database, "singletons", 100)
    with pytest.raises(ClaimLost), database.write() as session:
        singletons.guard(session, old)
    new = held(database, "b")
    for act in (lambda session: singletons.guard(session, old), lambda session: singletons.heartbeat(session, old, 15.0)):
        with pytest.raises(ClaimLost), database.write() as session:
            act(session)
    with database.write() as session:
        singletons.release(session, old)
        singletons.guard(session, new)


def test_a_late_heartbeat_counts_while_nobody_came(database: Database) -> None:
    hold = held(database, "a")
    age(database, "singletons", 100)
    with database.write() as session:
        singletons.heartbeat(session, hold, 15.0)
        singletons.guard(session, hold)
    assert claim(database, "b") is None


@pytest.fixture
def ids(database: Database) -> list[int]:
    with database.write() as session:
        return [hosts.register(session, name, "local", {}).id or 0 for name in ("gpu-2", "gpu-1")]


def seen(database: Database) -> list[tuple[str, str, float]]:
    with database.read() as session:
        return [(host, owner, round(age_s, -1)) for host, owner, age_s in workers.seen(session)]


def beat(database: Database, host_id: int, owner: str) -> None:
    with database.write() as session:
        workers.beat(session, host_id, owner, "1.0")


def test_workers_are_seen_by_host_and_the_latest_first(database: Database, ids: list[int]) -> None:
    beat(database, ids[0], "old")
    beat(database, ids[0], "same")
    age(database, "workers", 100)
    beat(database, ids[1], "other")
    beat(database, ids[0], "same")
    assert seen(database) == [("gpu-1", "other", 0), ("gpu-2", "same", 0), ("gpu-2", "old", 100)]


def test_one_that_leaves_is_gone_and_one_that_died_is_forgotten_later(database: Database, ids: list[int]) -> None:
    for owner in ("left", "died", "lives"):
        beat(database, ids[0], owner)
    with database.write() as session:
        workers.leave(session, ids[0], "left")
    age(database, "workers", 100)
    beat(database, ids[0], "lives")
    with database.write() as session:
        workers.reap(session, 200.0)
    assert [owner for _, owner, _ in seen(database)] == ["lives", "died"]
    with database.write() as session:
        workers.reap(session, 50.0)
    assert [owner for _, owner, _ in seen(database)] == ["lives"]
