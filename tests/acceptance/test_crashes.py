"""Whatever is killed or frozen, whenever: the next one goes on, the load is not repeated, nothing is lost or doubled."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psutil
import pytest
from sqlalchemy import text

from service.store import migrate
from service.store.database import WRITER_LOCK, Database
from tests.acceptance.service import Service, port_is_free, steps, wait_for

STEPS = ("clear", "launch", "load", "warm", "measure", "collect")
LEASE = {"EXPCTL_LEASE_S": "2"}


@pytest.fixture
def environ() -> dict[str, str]:
    return LEASE


def events(service: Service, one: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(service.api(f"/v1/experiments/{one}/events"))
    return found


def whole(service: Service, one: int, pid: int | None) -> None:
    """One success, one start, one engine, every request once."""
    item = service.ended(one)
    assert item["outcome"] == "succeeded", (item["reason"], item["detail"])
    kinds = [event["type"] for event in events(service, one)]
    assert kinds.count("experiment.started") == kinds.count("experiment.finished") == 1
    assert [step["name"] for step in item["steps"]] == list(STEPS)
    phases = json.loads(service.cli("results", str(one), "--json").stdout)["phases"]
    assert [(phase["concurrency"], len(phase["requests"])) for phase in phases] == [(1, 5), (4, 5)]
    if pid is not None:
        assert steps(item)["launch"]["evidence"]["pid"] == pid
    # The engine was loaded once: its log has one beginning.
    assert service.cli("logs", str(one)).stdout.count("Starting to load model") == 1
    assert port_is_free(service.engine_port)


@pytest.mark.parametrize("step", [step if step == "launch" else pytest.param(step, marks=pytest.mark.costly) for step in STEPS])
def test_the_worker_is_killed_in_every_step(service: Service, step: str) -> None:
    one = service.submit(service.file("x", bench={"max_tokens": 30 if step == "measure" else 8}, LOAD_SECONDS="1"))
    item = service.at_step(one, step)
    launched = steps(item).get("launch", {}).get("evidence", {}).get("pid")
    service.kill("worker")
    whole(service, one, launched)


@pytest.mark.costly
def test_the_api_is_killed_again_and_again(service: Service) -> None:
    one = service.submit(service.file("x", bench={"max_tokens": 60}, LOAD_SECONDS="1"))
    for step in ("load", "measure"):
        service.at_step(one, step)
        old = service.kill("api")
        wait_for(lambda old=old: service.children().get("api") not in {None, old})  # type: ignore[misc]
        wait_for(lambda: service.cli("queue").returncode == 0)
    whole(service, one, None)


def test_everything_of_ours_is_killed_at_once(service: Service) -> None:
    one = service.submit(service.file("x", bench={"max_tokens": 8}, LOAD_SECONDS="3"))
    item = service.at_step(one, "load")
    pid = wait_for(lambda: steps(service.show(one))["launch"]["evidence"].get("pid"))
    assert item["status"] == "running"
    service.kill_all()
    assert psutil.pid_exists(pid)
    service.start()
    whole(service, one, pid)


@pytest.mark.parametrize(("step", "tokens", "load"), [("load", 8, "4"), pytest.param("measure", 100, "0.3", marks=pytest.mark.costly)])
def test_a_frozen_worker_that_wakes_up_touches_nothing(service: Service, step: str, tokens: int, load: str) -> None:
    one = service.submit(service.file("x", bench={"max_tokens": tokens}, LOAD_SECONDS=load))
    service.at_step(one, step)
    pid = steps(service.show(one))["launch"]["evidence"]["pid"]
    frozen = service.children()["worker"]
    log = service.data / "logs" / "worker-local.log"
    losses = log.read_text().count("claim lost")
    freeze(service, frozen)
    argv = [sys.executable, "-m", "expctl", "worker", "--host", "local"]
    with (service.folder / "second.log").open("wb") as out:
        second = subprocess.Popen(argv, env=service.environment(), stdout=out, stderr=out)
    try:
        wait_for(lambda: second.pid in _owners(service))
        os.kill(frozen, signal.SIGCONT)
        whole(service, one, pid)
        wait_for(lambda: log.read_text().count("claim lost") > losses)
    finally:
        second.terminate()
        second.wait(20)


def freeze(service: Service, pid: int) -> None:
    """Stop a worker, but not in the middle of a transaction: there is one write lock, and a frozen holder keeps it from all."""
    database = Database(service.database_url)

    def frozen_between_transactions() -> bool:
        os.kill(pid, signal.SIGSTOP)
        if nobody_writes(database):
            return True
        os.kill(pid, signal.SIGCONT)
        return False

    wait_for(frozen_between_transactions)
    database.close()


def nobody_writes(database: Database) -> bool:
    """Whether the write lock can be had."""
    if database.engine.dialect.name == "postgresql":
        with database.engine.connect() as connection:
            return bool(connection.scalar(text(f"SELECT pg_try_advisory_xact_lock({WRITER_LOCK})")))
    with closing(sqlite3.connect(str(database.engine.url.database), timeout=0.1, isolation_level=None)) as raw:
        try:
            raw.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
    return True


def _owners(service: Service) -> list[int]:
    owner = service.host()["worker"]
    return [int(owner.rsplit(":", 1)[1])] if owner else []


def test_a_silent_worker_is_told_of_and_so_is_its_return(service: Service) -> None:
    one = service.submit(service.file("x", LOAD_SECONDS="9"))
    service.at_step(one, "load")
    worker = service.children()["worker"]
    os.kill(worker, signal.SIGSTOP)
    look: Callable[[], bool] = lambda: service.host()["worker_silent"]  # noqa: E731 - named for the message of a failure
    wait_for(look)
    os.kill(worker, signal.SIGCONT)
    service.ended(one)


def test_an_upgrade_under_a_running_engine(service: Service) -> None:
    one = service.submit(service.file("x", bench={"max_tokens": 8}, LOAD_SECONDS="4"))
    service.at_step(one, "load")
    pid = wait_for(lambda: steps(service.show(one))["launch"]["evidence"].get("pid"))
    service.kill_all()
    database = Database(service.database_url)
    migrate.downgrade(database, "-1")
    assert migrate.current(database) != migrate.head()
    database.close()
    service.start()
    whole(service, one, pid)


def test_a_worker_that_meets_a_newer_migration_claims_nothing(service: Service) -> None:
    database = Database(service.database_url)
    with database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    one = service.submit(service.file("x"))
    log = service.data / "logs" / "worker-local.log"
    wait_for(lambda: "claiming nothing" in log.read_text())
    assert service.show(one)["status"] == "queued"
    with database.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :head"), {"head": migrate.head()})
    database.close()
    assert service.ended(one)["outcome"] == "succeeded"
