"""The embedded service on PostgreSQL, as a team that has a server would run it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from service.store.database import Database
from service.store.tables import ExperimentRow
from tests.acceptance.service import Service, steps
from tests.databases import PostgresServer


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    """An empty database; `up` migrates it."""
    name = postgres.create("template0")
    yield postgres.url(name)
    postgres.drop(name)


@pytest.fixture
def environ(url: str) -> dict[str, str]:
    return {"EXPCTL_DATABASE_URL": url}


def test_two_experiments_and_their_comparison(service: Service, url: str) -> None:
    assert url.startswith("postgresql://")
    speculative = {"speculative": {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}}
    base = service.submit(service.file("base"))
    ngram = service.submit(service.file("ngram", engine=speculative))
    done = service.cli("wait", str(base), str(ngram), "--timeout", "90s")
    assert done.returncode == 0, done.stderr
    for one in (base, ngram):
        item = service.show(one)
        assert (item["outcome"], list(steps(item))) == ("succeeded", ["clear", "launch", "load", "warm", "measure", "collect"])
    assert "API server" in service.cli("logs", str(base)).stdout
    comparison = json.loads(service.cli("compare", str(base), str(ngram), "--json").stdout)
    assert comparison["verdict"] == "worse"
    database = Database(url)
    with database.read() as session:
        assert [session.get_one(ExperimentRow, one).name for one in (base, ngram)] == ["base", "ngram"]
    database.close()
    assert not (service.data / "expctl.db").exists()


def test_the_service_survives_the_loss_of_every_connection(service: Service, postgres: PostgresServer, url: str) -> None:
    one = service.submit(service.file("kept", LOAD_SECONDS="3"))
    service.at_step(one, "load")
    pid = steps(service.show(one))["launch"]["evidence"]["pid"]
    postgres.disconnect(url.partition("?")[0].rpartition("/")[2])
    item = service.ended(one)
    assert (item["outcome"], item["attempt"], steps(item)["launch"]["evidence"]["pid"]) == ("succeeded", 1, pid)
