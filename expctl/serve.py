"""The processes: API, worker, steward, and `up`, which runs all three as children of one command.

The only module of the command line that may import the edges of the service and of the workers.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from service import logs
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
    "workers.postman",
    "workers.presence",
    "workers.steward",
)
"""Modules of the processes that are imported only by those who run one."""
BROKER_PARTS = ("workers.tasks",)
"""Those that only a service with a broker needs."""
LEAVE_S = 8.0
"""How long a worker that was asked to go may take to hand over; whoever asked would kill it a little later."""


def open_database(settings: Settings) -> Database:
    """The database, which must be there, and at this version's migration."""
    if not settings.database_url and not (settings.data_dir / "expctl.db").exists():
        todo = "name the service's folder with --data or EXPCTL_DATA_DIR, or run `expctl db upgrade` to make one"
        raise Conflict(f"there is no database in {settings.data_dir}", "", todo)
    database = Database(settings.resolved_database_url)
    try:
        at, head = migrate.current(database), migrate.head()
    except OperationalError as error:
        raise _unavailable(error) from None
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
        raise _unavailable(error) from None
    finally:
        database.close()
    return migrate.head()


def _unavailable(error: OperationalError) -> Unavailable:
    todo = "start the database, or correct EXPCTL_DATABASE_URL"
    return Unavailable("the database does not answer", str(error.orig or error).splitlines()[0], todo)


def register_hosts(settings: Settings, local_hosts: Mapping[str, dict[str, Any]]) -> None:
    """Make hosts known that are reached on this machine itself. What else was set for them stays."""
    database = Database(settings.resolved_database_url)
    with database.write() as session:
        known = {row.name: row.config for row in hosts.every(session)}
        for name, config in local_hosts.items():
            hosts.register(session, name, "local", {**known.get(name, {}), **config})
    database.close()


def log_to_stderr(settings: Settings) -> None:
    """Structured log lines on standard error."""
    logs.configure(json=settings.log == "json")


def asked_to_stop(*also: threading.Event) -> threading.Event:
    """An event that TERM or INT sets, together with the others given. Starts a thread.

    A handler that set them itself could wait for ever: for the lock of an event that the very code it interrupted holds.
    """
    stop = threading.Event()
    heard, say = os.pipe()
    os.set_blocking(say, False)

    def listen() -> None:
        os.read(heard, 1)
        for one in (stop, *also):
            one.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _whisper(say))
    threading.Thread(target=listen, name="signals", daemon=True).start()
    return stop


def _whisper(pipe: int) -> None:
    with contextlib.suppress(BlockingIOError):  # it is full of the same
        os.write(pipe, b"!")


def preload(settings: Settings) -> None:
    """Import what the processes need, so that those that are forked from this one need not."""
    for name in (*PARTS, *(BROKER_PARTS if settings.broker_url else ())):
        importlib.import_module(name)


def host_names(settings: Settings) -> list[str] | None:
    """Every registered host; None where the database does not answer. Leaves no connection behind, since its caller forks."""
    database = Database(settings.resolved_database_url)
    try:
        with database.read() as session:
            return [row.name for row in hosts.every(session)]
    except SQLAlchemyError:
        return None
    finally:
        database.close()


def run_api(settings: Settings, host: str, port: int, *, embedded: bool = False) -> None:
    """Serve the API until asked to stop. `embedded`: to this machine alone, which therefore needs no token."""
    import uvicorn  # noqa: PLC0415 - only this process serves

    from service.api.app import create_app  # noqa: PLC0415 - as above
    from service.wake import Waker  # noqa: PLC0415 - as above

    log_to_stderr(settings)
    waker = Waker(settings.broker_url)
    app = create_app(open_database(settings), loopback_only=embedded, waker=waker, settings=settings)
    server = uvicorn.Server(uvicorn.Config(app, host=host, port=port, log_config=None, access_log=False, timeout_graceful_shutdown=2))
    # What was imported stays. A full collection that walked through all of it would take longer than any request.
    gc.collect()
    gc.freeze()
    server.run()
    waker.close()


def run_worker(settings: Settings, host: str) -> None:
    """Work on one host until asked to stop; what runs on the host keeps running."""
    from service.domain.endpoint_rule import SETTING, EndpointRule  # noqa: PLC0415 - only this process works
    from service.domain.targets import AllowList  # noqa: PLC0415 - as above
    from workers.embedded import POLL_S, UNWOKEN_S, work  # noqa: PLC0415 - as above
    from workers.presence import Presence  # noqa: PLC0415 - as above
    from workers.worker import Worker  # noqa: PLC0415 - as above

    log_to_stderr(settings)
    woken = threading.Event()
    stop = asked_to_stop(woken)
    endpoints = EndpointRule(AllowList.parse(settings.endpoint_allow, SETTING))
    database = open_database(settings)
    with database.read() as session:
        host_id = hosts.by_name(session, host).id or 0
    worker = Worker(database, _owner(), settings.data_dir, dict(os.environ), stop, settings.lease_s, settings.lease_s / 4, woken, endpoints)
    with _leaving_in_time(stop), Presence(worker, host_id), contextlib.ExitStack() as more:
        if settings.broker_url:
            from workers.tasks import Listener  # noqa: PLC0415 - Celery is heavy, and only for those who have a broker

            more.enter_context(Listener(settings.broker_url, host, woken))
        work(worker, host, UNWOKEN_S if settings.broker_url else POLL_S)
    database.close()


@contextlib.contextmanager
def _leaving_in_time(stop: threading.Event) -> Iterator[None]:
    """However long a call of the host or of the database hangs, the process is gone in time. What it leaves is adopted, as after a kill."""
    gone = threading.Event()

    def watch() -> None:
        stop.wait()
        if not gone.wait(LEAVE_S):
            structlog.get_logger().error("could not hand over in time; whoever comes next takes over when the lease has run out")
            os._exit(1)

    threading.Thread(target=watch, name="leaving", daemon=True).start()
    yield
    gone.set()


def run_steward(settings: Settings) -> None:
    """Tick until asked to stop."""
    from service.wake import Waker  # noqa: PLC0415 - only this process ticks
    from workers.postman import Postman  # noqa: PLC0415 - as above
    from workers.steward import Steward  # noqa: PLC0415 - as above

    log_to_stderr(settings)
    stop = asked_to_stop()
    database = open_database(settings)
    waker = Waker(settings.broker_url)
    with _leaving_in_time(stop):
        Steward(database, _owner(), settings.lease_s, waker, lambda over: Postman(database, settings).run(over), stop).run()
        waker.close()
    database.close()


def _owner() -> str:
    """Who holds a lease: machine and pid."""
    return f"{socket.gethostname()}:{os.getpid()}"


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
