"""A team's service on PostgreSQL and Redis, as real processes: messages wake, and nothing hangs on them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from service.wake import TASK, make_app, queue_of
from tests.acceptance.installation import Installation, worker_of
from tests.acceptance.service import steps, wait_for
from tests.databases import PostgresServer
from tests.redis import RedisServer

pytestmark = pytest.mark.costly  # many processes that start and end

HOST = "gpu-1"
SHORT = {"max_tokens": 2, "concurrency": [1], "warmup": 0}
"""What is measured does not matter here."""
UNACKNOWLEDGED = {"unacked", "unacked_index"}


@pytest.fixture(scope="module")
def shared_redis() -> Iterator[RedisServer]:
    server = RedisServer().start()
    yield server
    server.end()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer, shared_redis: RedisServer) -> Iterator[Installation]:
    """All of it runs; each test leaves it so."""
    name = postgres.create()
    made = Installation(tmp_path_factory.mktemp("broker"), postgres.url(name), shared_redis.url)
    try:
        made.start_api()
        made.add_host(HOST)
        made.start_steward()
        made.start_worker(HOST)
        yield made
    finally:
        made.end()
        postgres.drop(name)


def test_a_message_a_hundred_times_is_one_run_and_none_is_kept_back(running: Installation, shared_redis: RedisServer) -> None:
    one = running.submit(HOST, bench=SHORT, LOAD_SECONDS="8")
    running.until(one, "load")
    app = make_app(shared_redis.url)
    for _ in range(100):
        app.send_task(TASK, args=(HOST,), queue=queue_of(HOST))
    wait_for(lambda: not {queue_of(HOST), *UNACKNOWLEDGED} & set(shared_redis.sizes()))
    assert running.show(one)["status"] == "running", "the messages have waited for the shift"
    item = running.succeeded(one)
    assert (item["attempt"], [step["name"] for step in item["steps"]].count("launch")) == (1, 1)
    events = [event["type"] for event in running.client.events(one)]
    assert events.count("experiment.started") == events.count("experiment.finished") == 1


def test_term_in_mid_load_and_the_next_worker_adopts(running: Installation) -> None:
    one = running.submit(HOST, bench=SHORT, LOAD_SECONDS="5")
    running.until(one, "load")
    pid = steps(running.show(one))["launch"]["evidence"]["pid"]
    worker = running.parts[worker_of(HOST)]
    assert worker.stop() < 10
    assert worker.process is not None
    assert worker.process.returncode == 0
    assert running.host(HOST)["worker"] is None, "the lease was not handed back"
    assert running.client.readiness()["workers"] == [], "its trace was not taken away"
    running.start_worker(HOST)
    item = running.succeeded(one)
    assert (steps(item)["launch"]["evidence"]["pid"], item["attempt"]) == (pid, 1)


def test_a_second_worker_stands_by(running: Installation) -> None:
    one = running.submit(HOST, bench=SHORT, LOAD_SECONDS="4")
    running.until(one, "load")
    second = running.start_worker(HOST, "second")
    wait_for(lambda: len(running.client.readiness()["workers"]) == 2)
    item = running.succeeded(one)
    assert item["attempt"] == 1
    assert "taking" not in second.said()
    second.stop()


def test_redis_is_wiped_in_the_middle_of_a_night(running: Installation, shared_redis: RedisServer) -> None:
    first = running.submit(HOST, bench=SHORT, LOAD_SECONDS="2")
    running.until(first, "load")
    shared_redis.wipe()
    second = running.submit(HOST, bench=SHORT)
    running.succeeded(first)
    shared_redis.restart(empty=True)
    third = running.submit(HOST, bench=SHORT)
    running.succeeded(second)
    running.until(third, "running", "load", "warm", "measure", seconds=15)
    running.succeeded(third)


def test_without_redis_everything_is_accepted_and_runs(running: Installation, shared_redis: RedisServer) -> None:
    shared_redis.stop()
    one = running.submit(HOST, bench=SHORT)
    assert running.show(one)["status"] in {"queued", "running"}
    running.succeeded(one)
    shared_redis.start()
    two = running.submit(HOST, bench=SHORT)
    running.succeeded(two)
    assert "the broker does not answer" in running.parts["api"].said()
