"""The processes: API, worker, steward, and `up`, which runs all three as children of one command.

The only module of the command line that may import the edges of the service and of the workers.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from service.domain.errors import Conflict, Unavailable, UsageError
from service.settings import Settings
from service.store import hosts, migrate
from service.store.database import Database

PARTS = (
    "service.api.app",
    "uvicorn.lifespan.on",
    "uvicorn.loops.asyncio",
    "uvicorn.protocols.http.httptools_impl",
    "workers.embedded",
    "workers.steward",
)
"""Modules of the processes that are imported only by those who run one."""


def open_database(settings: Settings) -> Database:
    """The database, which must be at this version's migration."""
    database = Database(settings.resolved_database_url)
    at, head = migrate.current(database), migrate.head()
    if at != head:
        raise Conflict(f"the database is at migration {at or 'none'}, this version needs {head}", "", "run `expctl db upgrade`")
    return database


def database_state(settings: Settings) -> tuple[str | None, str, str]:
    """The migration that the database is at, the newest one, and why it cannot be told where it cannot."""
    if not settings.database_url and not (settings.data_dir / "expctl.db").exists():
        return None, migrate.head(), ""
    try:
        database = Database(settings.resolved_database_url)
        try:
            return migrate.current(database), migrate.head(), ""
        finally:
            database.close()
    except (SQLAlchemyError, ImportError) as error:
        return None, migrate.head(), str(error).splitlines()[0]


def upgrade_database(settings: Settings) -> str:
    """Bring the database up to date; gives the migration it is at."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    database = Database(settings.resolved_database_url)
    try:
        migrate.upgrade(database)
    except OperationalError as error:
        todo = "start the database, or correct EXPCTL_DATABASE_URL"
        raise Unavailable("the database does not answer", str(error.orig or error).splitlines()[0], todo) from None
    finally:
        database.close()
    return migrate.head()


def register_hosts(settings: Settings, local_hosts: Mapping[str, dict[str, Any]]) -> None:
    """Make hosts known that are reached on this machine itself. What else was set for them stays."""
    database = Database(settings.resolved_database_url)
    with database.write() as session:
        known = {row.name: row.config for row in hosts.every(session)}
        for name, config in local_hosts.items():
            hosts.register(session, name, "local", {**known.get(name, {}), **config})
    database.close()


def log_to_stderr() -> None:
    """Structured log lines on standard error."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    # It prints a traceback for every refusal that it raises too, and that is told in words then.
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"], bool_as_flag=False),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def stop_event() -> threading.Event:
    """Set by TERM or INT."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def preload() -> None:
    """Import what the processes need, so that those that are forked from this one need not."""
    for name in PARTS:
        importlib.import_module(name)


def run_api(settings: Settings, host: str, port: int) -> None:
    """Serve the API until asked to stop."""
    import uvicorn  # noqa: PLC0415 - only this process serves

    from service.api.app import create_app  # noqa: PLC0415 - as above
    from service.api.origin import LOOPBACK  # noqa: PLC0415 - as above

    log_to_stderr()
    app = create_app(open_database(settings), loopback_only=host in LOOPBACK)
    server = uvicorn.Server(uvicorn.Config(app, host=host, port=port, log_level="warning", access_log=False, timeout_graceful_shutdown=2))
    server.run()


def run_worker(settings: Settings, host: str) -> None:
    """Work on one host until asked to stop; what runs on the host keeps running."""
    from workers.embedded import work  # noqa: PLC0415 - only this process works
    from workers.worker import Worker  # noqa: PLC0415 - as above

    log_to_stderr()
    stop = stop_event()
    database = open_database(settings)
    with database.read() as session:
        hosts.by_name(session, host)
    owner = f"{socket.gethostname()}:{os.getpid()}"
    work(Worker(database, owner, settings.data_dir, dict(os.environ), stop, settings.lease_s, settings.lease_s / 4), host)
    database.close()


def run_steward(settings: Settings) -> None:
    """Tick until asked to stop."""
    from workers import steward  # noqa: PLC0415 - only this process ticks

    log_to_stderr()
    stop = stop_event()
    database = open_database(settings)
    steward.run(database, stop)
    database.close()


def free_port() -> int:
    """A TCP port that nobody listens on just now."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def settings_for(data: Path | None) -> Settings:
    """The settings, with the data folder of this command line."""
    if data is not None:
        os.environ["EXPCTL_DATA_DIR"] = str(data.absolute())
    settings = Settings()
    if settings.data_dir.exists() and not settings.data_dir.is_dir():
        raise UsageError(f"{settings.data_dir} is not a folder", "", "give a folder to --data or EXPCTL_DATA_DIR")
    return settings
