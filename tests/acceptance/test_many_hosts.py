"""Three hosts, three workers, sixty jobs: the hosts work side by side, and each in the order of its queue."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.acceptance.installation import Installation
from tests.acceptance.service import wait_for
from tests.databases import PostgresServer
from tests.redis import RedisServer

HOSTS = ("gpu-1", "gpu-2", "gpu-3")
EACH = 20

pytestmark = pytest.mark.costly  # a minute of processes that start and end


@pytest.fixture
def running(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer, redis_server: RedisServer) -> Iterator[Installation]:
    name = postgres.create()
    made = Installation(tmp_path_factory.mktemp("many"), postgres.url(name), redis_server.url)
    try:
        made.start_api()
        made.start_steward()
        for host in HOSTS:
            made.add_host(host)
        for host in HOSTS:
            made.start_worker(host)
        yield made
    finally:
        made.end()
        postgres.drop(name)


def job(host: str, number: int) -> dict[str, Any]:
    """One that leaves time for the others to be seen beside it."""
    return {"name": f"{host} {number}", "host": host, "engine": {"kind": "command", "run": ["sleep", "0.3"], "gpus": "none"}}


def test_all_run_once_side_by_side_and_in_order(running: Installation) -> None:
    """Submitted in turn, a host after the other."""
    made = running.client.submit([job(host, number) for number in range(EACH) for host in HOSTS])
    ids = [one["id"] for one in made]
    assert len(set(ids)) == EACH * len(HOSTS)
    wait_for(lambda: len(running.client.experiments(statuses=["finished"], limit=100)) == len(ids), 240, every=1.0)
    items = {item["id"]: item for item in running.client.experiments(limit=100)}
    assert [items[one]["outcome"] for one in ids] == ["succeeded"] * len(ids), running.said()
    kinds = [event["type"] for one in ids for event in running.client.events(one)]
    assert kinds.count("experiment.started") == kinds.count("experiment.finished") == len(ids)
    spans = {host: [(items[one]["started_at"], items[one]["finished_at"]) for one in ids if items[one]["host"] == host] for host in HOSTS}
    for host in HOSTS:
        assert all(end <= start for (_, end), (start, _) in pairwise(spans[host])), f"{host}: out of order, or two at once"
    for one, other in pairwise(HOSTS):
        together = sum(1 for start, end in spans[one] if any(start < late and early < end for early, late in spans[other]))
        assert together > EACH / 2, f"{one} and {other} have waited for each other"
