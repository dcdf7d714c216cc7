from __future__ import annotations

from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from service.store import migrate
from service.store.database import Database
from service.store.tables import metadata


def test_head_is_where_an_upgrade_ends(database: Database) -> None:
    assert migrate.current(database) == migrate.head() != ""


def test_the_migrations_and_the_tables_say_the_same(database: Database) -> None:
    with database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_down_to_nothing_and_up_again(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'x.db'}")
    migrate.upgrade(database)
    migrate.downgrade(database, "base")
    assert migrate.current(database) is None
    with database.engine.connect() as connection:
        names = {row[0] for row in connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert names <= {"alembic_version", "sqlite_sequence"}
    migrate.upgrade(database)
    assert migrate.current(database) == migrate.head()
    database.close()
