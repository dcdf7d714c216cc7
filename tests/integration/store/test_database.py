"""The connection: what is stored comes back, on each database; and what only PostgreSQL can do wrong."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, OperationalError, StatementError

from service.domain.errors import UsageError
from service.store import hosts
from service.store.database import Database
from service.store.tables import HostRow
from tests.databases import PostgresServer


@pytest.fixture
def name(postgres: PostgresServer) -> Iterator[str]:
    """A migrated PostgreSQL database."""
    made = postgres.create()
    yield made
    postgres.drop(made)


def shown(database: Database, *settings: str) -> list[str]:
    with database.write() as session:
        return [session.execute(text(f"SHOW {setting}")).scalar_one() for setting in settings]


def test_a_figure_that_is_none_is_stored_as_not_known(database: Database) -> None:
    with database.write() as session:
        hosts.register(session, "x", "local", {"a": float("nan"), "b": [float("inf"), 1.5], "c": {"d": (float("-inf"), "NaN")}})
    with database.read() as session:
        assert hosts.by_name(session, "x").config == {"a": None, "b": [None, 1.5], "c": {"d": [None, "NaN"]}}


def test_texts_come_back_but_for_nul_where_it_cannot_be_stored(database: Database) -> None:
    odd = "\x00 é \N{SNOWMAN} \U0001f600 ' \" \\ % :name \r\n\t\x1b[31m"
    with database.write() as session:
        row = hosts.register(session, "x", "local", {"key\x00": odd})
        row.blocked = odd
    with database.read() as session:
        found = hosts.by_name(session, "x")
        assert found.config == {"key\x00": odd}
        assert found.blocked == (odd if database.url.startswith("sqlite") else odd.replace("\x00", "\N{REPLACEMENT CHARACTER}"))


def test_times_are_aware_and_in_utc(database: Database) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=9)))
    with database.write() as session:
        session.add(HostRow(name="x", created_at=at))
    with database.read() as session:
        found = hosts.by_name(session, "x").created_at
    assert (found, found.tzinfo) == (at, UTC)


def test_a_time_without_a_zone_is_refused(database: Database) -> None:
    with pytest.raises(StatementError, match="without a zone"), database.write() as session:
        session.add(HostRow(name="x", created_at=datetime(2026, 1, 1)))  # noqa: DTZ001 - the point


@pytest.mark.parametrize("url", ["nonsense", "mysql://localhost/x", "", "oracle+oracledb://x"])
def test_other_databases_are_refused_in_words(url: str) -> None:
    with pytest.raises(UsageError, match="EXPCTL_DATABASE_URL"):
        Database(url)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_way_to_write_the_url(postgres: PostgresServer, name: str, scheme: str) -> None:
    database = Database(postgres.url(name).replace("postgresql", scheme, 1))
    assert shown(database, "application_name") == ["expctl"]
    database.close()


def test_nothing_waits_for_ever(postgres: PostgresServer, name: str) -> None:
    database = Database(postgres.url(name))
    limits = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
    assert shown(database, *limits) == ["10s", "30s", "20s"]
    database.close()


def test_the_settings_of_the_url_go_first(postgres: PostgresServer, name: str) -> None:
    database = Database(f"{postgres.url(name)}&application_name=mine&options=-c%20lock_timeout%3D7s%20-c%20timezone%3DAsia/Tokyo")
    assert shown(database, "application_name", "lock_timeout", "timezone", "statement_timeout") == ["mine", "7s", "Asia/Tokyo", "30s"]
    with database.write() as session:
        made = hosts.register(session, "x", "local", {}).created_at
    with database.read() as session:
        found = hosts.by_name(session, "x").created_at
    assert (found, found.tzinfo) == (made, UTC)
    database.close()


def test_the_isolation_is_ours_whatever_the_server_prefers(postgres: PostgresServer, name: str) -> None:
    postgres.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    database = Database(postgres.url(name))
    assert shown(database, "transaction_isolation", "transaction_read_only") == ["read committed", "off"]
    with database.read() as session:
        assert session.execute(text("SHOW transaction_isolation")).scalar_one() == "repeatable read"
        assert session.execute(text("SHOW transaction_read_only")).scalar_one() == "on"
    assert shown(database, "transaction_isolation", "transaction_read_only") == ["read committed", "off"]
    database.close()


def test_connections_that_the_server_ended_are_replaced(postgres: PostgresServer, name: str) -> None:
    database = Database(postgres.url(name))
    with database.read() as session:
        assert hosts.every(session) == []
    postgres.disconnect(name)
    with database.read() as session:
        assert hosts.every(session) == []
    database.close()


def test_a_writer_gives_up_when_its_turn_does_not_come_and_readers_never_wait(
    postgres: PostgresServer, name: str, threads: ThreadPoolExecutor
) -> None:
    database = Database(f"{postgres.url(name)}&options=-c%20lock_timeout%3D100ms")
    with database.write() as session:
        hosts.register(session, "x", "local", {})
        with pytest.raises(OperationalError, match="lock timeout"):
            threads.submit(shown, database, "lock_timeout").result(10)
        with database.read() as reader:
            assert hosts.every(reader) == []
    with database.read() as session:
        assert [row.name for row in hosts.every(session)] == ["x"]
    database.close()


def test_a_writer_that_stopped_in_the_middle_is_ended_by_the_server(
    postgres: PostgresServer, name: str, threads: ThreadPoolExecutor
) -> None:
    database = Database(f"{postgres.url(name)}&options=-c%20idle_in_transaction_session_timeout%3D200ms")

    def stop_in_the_middle() -> None:
        with database.write() as session:
            hosts.register(session, "stopped", "local", {})
            assert threads.submit(shown, database, "lock_timeout").result(10) == ["10s"]  # its turn came

    with pytest.raises(DBAPIError, match="idle-in-transaction"):
        stop_in_the_middle()
    with database.read() as session:
        assert hosts.every(session) == []
    database.close()
