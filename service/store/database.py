"""The connection to the database, and the two kinds of session: read, and write which commits at its end.

Only the edges (a request, a step) open sessions; the functions of this room take one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, DateTime, Dialect, Engine, Float, TypeDecorator, create_engine, event
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlmodel import Session


class UtcDateTime(TypeDecorator[datetime]):
    """An aware UTC time, also on SQLite, which knows no zones."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse times without a zone: they would mean something else on another machine."""
        del dialect
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Aware again."""
        del dialect
        return value.replace(tzinfo=UTC) if value is not None and value.tzinfo is None else value


class db_now(FunctionElement[float]):  # noqa: N801 - reads as the SQL function it is
    """The database's own clock, seconds since 1970. Leases are compared with it, so that workers' clocks cannot matter."""

    type = Float()
    inherit_cache = True


@compiles(db_now, "sqlite")
def _sqlite_now(element: db_now, compiler: SQLCompiler, **kw: Any) -> str:
    del element, compiler, kw
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(db_now, "postgresql")
def _postgresql_now(element: db_now, compiler: SQLCompiler, **kw: Any) -> str:
    del element, compiler, kw
    return "extract(epoch from clock_timestamp())::double precision"


class Database:
    """One database, its pool, and its sessions."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine: Engine = create_engine(url, pool_pre_ping=not url.startswith("sqlite"))
        if self.engine.dialect.name == "sqlite":
            event.listen(self.engine, "connect", _prepare_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)
        self._writer = self.engine.execution_options(expctl_write=True)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session that is rolled back at its end."""
        with Session(self.engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A session that commits at its end, or leaves nothing behind when an error passes through."""
        with Session(self._writer, expire_on_commit=False) as session, session.begin():
            yield session

    def close(self) -> None:
        """Give the pool's connections back."""
        self.engine.dispose()


def _prepare_sqlite(connection: Any, record: Any) -> None:
    del record
    connection.isolation_level = None  # sqlite3's own BEGIN is deferred and too late; ours is below
    cursor = connection.cursor()
    for pragma in ("busy_timeout=30000", "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A deferred transaction that reads and then writes fails at once when another wrote in between; IMMEDIATE waits.
    write = connection.get_execution_options().get("expctl_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
