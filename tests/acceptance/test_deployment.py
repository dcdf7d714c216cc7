"""The services of docker-compose.yml, by the commands that stand there, without containers: from an empty database to an experiment."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import composefile
from tests.acceptance.installation import API, EXPCTL, STEWARD, Installation, worker_of
from tests.acceptance.service import wait_for
from tests.databases import PostgresServer
from tests.redis import RedisServer

pytestmark = pytest.mark.costly  # as many processes as a deployment has

HOST = "gpu-1"


@pytest.fixture
def installation(tmp_path: Path, postgres: PostgresServer, redis_server: RedisServer) -> Iterator[Installation]:
    name = postgres.create("template0")
    made = Installation(tmp_path, postgres.url(name), redis_server.url)
    yield made
    made.end()
    postgres.drop(name)


def test_the_commands_of_the_compose_file_are_a_working_service(
    installation: Installation, redis_server: RedisServer, tmp_path: Path
) -> None:
    given = {
        "POSTGRES_PASSWORD": "unused", "REDIS_PASSWORD": "unused", "EXPCTL_BASE_URL": "https://expctl.example.org",
        "EXPCTL_HOST": HOST, "EXPCTL_SSH_DIR": str(installation.folder),
    }  # fmt: skip
    services = composefile.filled_in(composefile.read(), given)["services"]
    names = {"migrate": "migrate", "api": API, "steward": STEWARD, "worker": worker_of(HOST)}

    def start(service: str) -> Any:
        """As compose would, but for the addresses of what stands beside it."""
        one = services[service]
        verb = [word.replace("8700", str(installation.port)) for word in one["command"]]
        beside = {"EXPCTL_DATABASE_URL", "EXPCTL_BROKER_URL", "EXPCTL_DATA_DIR", "PGPASSWORD"}
        environ = {key: value for key, value in one["environment"].items() if key not in beside}
        return installation.add(names[service], *verb, data=installation.data_of(HOST), **environ).start()

    migrate = start("migrate")
    assert migrate.process.wait(60) == 0, migrate.said()
    api = start("api")
    first = [*EXPCTL, "token", "create", "first", "--scope", "admin", "--local"]
    installation.token = subprocess.check_output(first, text=True, env=installation.environment(tmp_path)).strip()
    wait_for(lambda: installation.client.ready() or not api.alive)
    installation.add_host(HOST)
    start("steward")
    start("worker")
    wait_for(lambda: f"_kombu.binding.host.{HOST}" in redis_server.sizes())
    one = installation.submit(HOST, bench={"max_tokens": 2, "concurrency": [1], "warmup": 0})
    item = installation.succeeded(one)
    assert item["host"] == HOST
    with redis_server.client as client:
        sent = client.info("commandstats")
    assert sent["cmdstat_lpush"]["calls"] >= 1, "no message was sent"
    assert f"host.{HOST}" not in redis_server.sizes(), "the message was not taken"
    for part in reversed(list(installation.parts.values())):
        if part.alive:
            assert part.stop() < 10
    assert '"event": "taking"' in installation.parts[worker_of(HOST)].said(), "its log is not JSON"
