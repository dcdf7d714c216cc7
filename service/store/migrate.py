"""Migrations: where they lie, bringing a database up to date, and whether it is."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlmodel import Session

from service.store.database import Database


def folder() -> Path:
    """The migrations: inside the package when installed, at the top of the tree in a checkout."""
    packaged = Path(__file__).parent / "alembic"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "alembic"


def _config(database: Database) -> Config:
    config = Config()
    config.set_main_option("script_location", str(folder()))
    config.attributes["engine"] = database.engine
    return config


def upgrade(database: Database, to: str = "head") -> None:
    """Bring the schema up to `to`."""
    command.upgrade(_config(database), to)


def downgrade(database: Database, to: str) -> None:
    """Take the schema back to `to`; `base` is empty."""
    command.downgrade(_config(database), to)


def head() -> str:
    """The newest migration that this version knows."""
    config = Config()
    config.set_main_option("script_location", str(folder()))
    return ScriptDirectory.from_config(config).get_current_head() or ""


def current(database: Database) -> str | None:
    """The migration the database is at; None before the first."""
    with database.engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def current_of(session: Session) -> str | None:
    """The same, on a session's connection."""
    return MigrationContext.configure(session.connection()).get_current_revision()
