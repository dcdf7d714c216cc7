"""What every room's tests share."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import settings

from service.store import migrate
from service.store.database import Database
from tests.databases import PostgresServer, start_postgres
from tests.redis import RedisServer

# A machine that does other things too is no failure, and no example is worth keeping between runs.
settings.register_profile("expctl", deadline=None, database=None)
settings.load_profile("expctl")


STORES = ("database", "empty_url", "services")
"""Fixtures that stand on a database. Whoever uses one runs on each kind of server, unless it names its own."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which kind of database tests stand on, so that a quick run is content with one."""
    parser.addoption("--on", choices=["sqlite", "postgresql", "both"], default="both", help="database of the tests that need one")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that needs a database runs on each kind that was asked for."""
    named = {str(mark.args[0]) for mark in metafunc.definition.iter_markers("parametrize")}
    for store in STORES:
        if store in metafunc.fixturenames and store not in named:
            scope: Literal["session", "function"] = "session" if store == "services" else "function"
            metafunc.parametrize(store, ["sqlite", "postgresql"], indirect=True, scope=scope)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What needs no database has its turn with SQLite, and what costs a minute with PostgreSQL."""
    others = [item for item in items if not _wanted(item, config.getoption("--on"))]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]


def _wanted(item: pytest.Item, on: str) -> bool:
    if on == "both":
        return True
    given = item.callspec.params if hasattr(item, "callspec") else {}
    kinds = {given[store] for store in STORES if store in given}
    if item.get_closest_marker("costly"):
        return on == "postgresql" and on in (kinds or {on})
    return on in (kinds or {"sqlite"})


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the person who runs the tests leaks in."""
    for name in list(os.environ):
        if name.startswith("EXPCTL_") and name != "EXPCTL_LAB_DIR":
            monkeypatch.delenv(name)
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")  # where a token may lie


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server, started when a test first asks for it."""
    server = start_postgres()
    yield server
    server.stop()


@pytest.fixture
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where an empty database of the test's own is, on each kind of server."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    name = server.create("template0")
    yield server.url(name)
    server.drop(name)


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite database: to copy it costs a hundredth of migrating another one."""
    path = tmp_path_factory.mktemp("template") / "expctl.db"
    made = Database(f"sqlite:///{path}")
    migrate.upgrade(made)
    made.close()
    assert not path.with_name("expctl.db-wal").exists(), "something of it is not in the file yet"
    return path


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A migrated database of the test's own, on each kind of server."""
    if request.param == "sqlite":
        copy = shutil.copyfile(request.getfixturevalue("migrated_file"), tmp_path / "expctl.db")
        made = Database(f"sqlite:///{copy}")
        yield made
        made.close()
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    name = server.create()
    made = Database(server.url(name))
    yield made
    made.close()
    server.drop(name)


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A Redis of the test's own; it may be stopped, emptied and started again."""
    server = RedisServer().start()
    yield server
    server.end()
