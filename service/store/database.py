"""The connection to the database, and the two kinds of session: read, and write which commits at its end.

Only the edges (a request, a step) open sessions; the functions of this room take one.

Both databases keep the same two promises, so that the functions of this room need not know which one they are on: a reader sees
one moment for as long as its session lasts, and a writer is alone from its first statement to its commit. What a writer read
is still true when it writes; writers cannot deadlock; and ids grow in the order of the commits, so that whoever reads on
after the last id it saw misses nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from typing import Any

from sqlalchemy import URL, Connection, DateTime, Dialect, Engine, Float, TypeDecorator, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import sessionmaker
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlmodel import Session

from service.domain.errors import UsageError

WRITER_LOCK = 0x65787063746C
"""The advisory lock of PostgreSQL that every writing transaction holds: `expctl` in ASCII."""

LOCK_TIMEOUT_S = 10
"""How long a writer waits for its turn. Well below a lease, so that a heartbeat that fails is tried again in time."""
IDLE_TIMEOUT_S = 20
"""A client that stopped in the middle of a transaction keeps the others waiting this long; then the server ends it."""
STATEMENT_TIMEOUT_S = 30

# A setting that stands in the URL goes before these. On a network that swallows packets, a heartbeat must not hang in a socket.
POSTGRESQL_CONNECTION: dict[str, Any] = {
    "application_name": "expctl",
    "connect_timeout": 5,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
POSTGRESQL_OPTIONS = (
    f"-c timezone=UTC -c lock_timeout={LOCK_TIMEOUT_S}s -c statement_timeout={STATEMENT_TIMEOUT_S}s"
    f" -c idle_in_transaction_session_timeout={IDLE_TIMEOUT_S}s"
)
# Fifteen connections are as many requests as the API answers at once before others wait; a worker uses two or three.
POSTGRESQL_POOL: dict[str, Any] = {"pool_pre_ping": True, "pool_size": 5, "max_overflow": 10, "pool_timeout": 10, "pool_recycle": 1800}


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
        """Aware again, and in UTC whatever zone the server answers in."""
        del dialect
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


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
        self.engine = _engine(_parse(url))
        self.writers = sessionmaker(self.engine.execution_options(expctl_write=True), class_=Session, expire_on_commit=False)
        """Makes the sessions that write; see `write`."""
        self._reader = self.engine
        if self.engine.dialect.name == "postgresql":
            self._reader = self.engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session that sees the database at one moment and is rolled back at its end."""
        with Session(self._reader, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A session that commits at its end, or leaves nothing behind when an error passes through."""
        with self.writers() as session, session.begin():
            yield session

    def close(self) -> None:
        """Give the pool's connections back."""
        self.engine.dispose()


@contextmanager
def migration(engine: Engine) -> Iterator[Connection]:
    """A connection that writes alone, with as much time as it needs, and commits at its end."""
    with engine.execution_options(expctl_write=True).begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
        yield connection


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise UsageError("EXPCTL_DATABASE_URL is no URL", "", "write postgresql://USER:PASSWORD@HOST/NAME, or sqlite:////PATH") from None
    # What people and hosting services write; SQLAlchemy would look for another driver, or none.
    return parsed.set(drivername="postgresql+psycopg") if parsed.drivername in {"postgres", "postgresql"} else parsed


def _engine(url: URL) -> Engine:
    backend = url.get_backend_name()
    if backend == "sqlite":
        engine = create_engine(url, json_serializer=_to_json)
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    elif backend == "postgresql":
        arguments = {key: value for key, value in POSTGRESQL_CONNECTION.items() if key not in url.query}
        # The last one of a name counts, so here too the URL's go before ours.
        arguments["options"] = " ".join([POSTGRESQL_OPTIONS, *url.normalized_query.get("options", ())])
        engine = create_engine(url, json_serializer=_to_json, isolation_level="READ COMMITTED", connect_args=arguments, **POSTGRESQL_POOL)
        event.listen(engine, "connect", _prepare_postgresql)
        event.listen(engine, "begin", _begin_postgresql)
    else:
        raise UsageError(f"EXPCTL_DATABASE_URL names {backend}", "expctl knows SQLite and PostgreSQL", "write postgresql:// or sqlite:///")
    return engine


def _to_json(value: Any) -> str:
    """JSON as PostgreSQL takes it. A figure that is none (NaN, infinite) is not known, so it is null."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _prepare_sqlite(connection: Any, record: Any) -> None:
    del record
    connection.isolation_level = None  # sqlite3's own BEGIN is deferred and too late; ours is below
    cursor = connection.cursor()
    for pragma in ("busy_timeout=30000", "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _writes(connection: Connection) -> bool:
    return bool(connection.get_execution_options().get("expctl_write", False))


def _begin_sqlite(connection: Connection) -> None:
    # A deferred transaction that reads and then writes fails at once when another wrote in between; IMMEDIATE waits.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if _writes(connection) else "BEGIN")


def _prepare_postgresql(connection: Any, record: Any) -> None:
    del record
    connection.adapters.register_dumper(str, _text_dumper())


@cache
def _text_dumper() -> type[Any]:
    from psycopg.types.string import StrDumperUnknown  # noqa: PLC0415 - only where PostgreSQL is used

    class WithoutNul(StrDumperUnknown):
        """PostgreSQL's texts cannot hold NUL, and an engine may write one into its log or its answer."""

        def dump(self, obj: str) -> Any:
            return super().dump(obj.replace("\x00", "\N{REPLACEMENT CHARACTER}"))

    return WithoutNul


def _begin_postgresql(connection: Connection) -> None:
    # PostgreSQL's BEGIN IMMEDIATE. Row locks alone would let two writers act on what the other one is about to change (an
    # experiment waits for one that fails just now), take locks in opposite orders, and commit event 6 before event 5.
    if _writes(connection):
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITER_LOCK})")
