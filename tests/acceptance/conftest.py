"""Running embedded services. Starting one costs seconds, so tests that leave it healthy share it.

Every test that uses a service runs on both databases, unless it says why not: `--on` picks. All tests of one database are run in a row,
so that no more services live at once than needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.service import Service
from tests.databases import TEMPLATE, PostgresServer
from workers.hosts.local import LocalHost

Environ = dict[str, str]
Pool = dict[tuple[tuple[str, str], ...], Service]


class Services:
    """Starts services on one kind of database, and ends them with all that is theirs."""

    def __init__(self, postgres: PostgresServer | None) -> None:
        self._postgres = postgres
        self._databases: dict[Path, str] = {}

    def start(self, folder: Path, environ: Environ, template: str = TEMPLATE) -> Service:
        """A service with a database of its own."""
        if self._postgres is not None:
            name = self._databases[folder] = self._postgres.create(template)
            environ = environ | {"EXPCTL_DATABASE_URL": self._postgres.url(name)}
        made = Service(folder, environ=environ)
        try:
            return made.start()
        except BaseException:
            self.end(made)
            raise

    def end(self, service: Service) -> None:
        """Stop a service, whatever a test has left of it, and the engines that would outlive it."""
        service.end()
        host = LocalHost("local", service.data)
        for unit in (service.data / "units").glob("*"):
            host.stop_unit(unit.name, grace_s=1)
        if self._postgres is not None:
            self._postgres.drop(self._databases.pop(service.folder))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The demo first: it waits for a minute, and whoever begins it last keeps all others waiting."""
    items.sort(key=lambda item: item.path.name != "test_demo.py")


@pytest.fixture(scope="session")
def services(request: pytest.FixtureRequest) -> Services:
    """Services on each kind of database."""
    return Services(None if request.param == "sqlite" else request.getfixturevalue("postgres"))


@pytest.fixture(scope="session")
def pool(services: Services) -> Iterator[Pool]:
    """Services that run, by their settings."""
    running: Pool = {}
    yield running
    for service in running.values():
        services.end(service)


@pytest.fixture
def environ() -> Environ:
    """Settings of the service; a module may give others."""
    return {}


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory, environ: Environ, services: Services, pool: Pool) -> Iterator[Service]:
    """A running embedded service with an idle host. It has a past: what earlier tests submitted has finished."""
    key = tuple(sorted(environ.items()))
    made = pool.pop(key, None) or services.start(tmp_path_factory.mktemp("service"), environ)
    yield made
    if made.settled():
        pool[key] = made
    else:
        services.end(made)


@pytest.fixture
def fresh(tmp_path: Path, services: Services) -> Iterator[Service]:
    """A running embedded service without a past; its database was empty when it started."""
    made = services.start(tmp_path, {}, "template0")
    yield made
    services.end(made)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, services: Services) -> Iterator[Service]:
    """One service for all tests that are only refused or only read; its host is paused, so that nothing runs."""
    made = services.start(tmp_path_factory.mktemp("shared"), {})
    assert made.cli("pause").returncode == 0
    yield made
    services.end(made)
