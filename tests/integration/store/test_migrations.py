from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect

from service.store import migrate
from service.store.database import Database
from service.store.tables import metadata


@pytest.fixture
def empty(empty_url: str) -> Iterator[Database]:
    made = Database(empty_url)
    yield made
    made.close()


def tables(database: Database) -> set[str]:
    return set(inspect(database.engine).get_table_names()) - {"alembic_version"}


def differences(database: Database) -> list[object]:
    with database.engine.connect() as connection:
        return list(compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata))


def partial_indexes(database: Database) -> dict[str, str]:
    """Name -> condition, which the comparison of the metadata does not look at."""
    dialect = database.engine.dialect.name
    return {
        str(index["name"]): "".join(str(index["dialect_options"][f"{dialect}_where"]).split())
        for table in tables(database)
        for index in inspect(database.engine).get_indexes(table)
        if f"{dialect}_where" in index.get("dialect_options", {})
    }


def test_head_is_where_an_upgrade_ends(database: Database) -> None:
    assert migrate.current(database) == migrate.head() != ""


def test_the_migrations_and_the_tables_say_the_same(database: Database) -> None:
    assert differences(database) == []
    assert set(partial_indexes(database)) == {"uq_experiments_active_host", "uq_shifts_open_host"}


def test_down_to_nothing_and_up_again(empty: Database) -> None:
    migrate.upgrade(empty)
    first = partial_indexes(empty)
    migrate.downgrade(empty, "base")
    assert migrate.current(empty) is None
    assert tables(empty) == set()
    migrate.upgrade(empty)
    assert migrate.current(empty) == migrate.head()
    assert differences(empty) == []
    assert partial_indexes(empty) == first


def test_one_step_down_and_up_again(database: Database) -> None:
    migrate.downgrade(database, "-1")
    assert migrate.current(database) != migrate.head()
    migrate.upgrade(database)
    assert differences(database) == []


def test_two_processes_may_migrate_at_once(empty_url: str, tmp_path: Path) -> None:
    environ = os.environ | {"EXPCTL_DATABASE_URL": empty_url, "EXPCTL_DATA_DIR": str(tmp_path)}
    argv = [sys.executable, "-m", "expctl", "db", "upgrade"]
    both = [subprocess.Popen(argv, env=environ, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    told = [process.communicate(timeout=60)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    database = Database(empty_url)
    assert migrate.current(database) == migrate.head()
    database.close()
