"""/healthz: the process answers. /readyz: what it stands on does too; it answers within seconds, whatever hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Generic, TypeVar

import structlog
from anyio import to_thread
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from sqlalchemy.exc import SQLAlchemyError

from service.api.deps import database
from service.domain.access import Scope
from service.store import migrate, singletons, workers
from service.store.database import Database

log = structlog.get_logger()
router = APIRouter(tags=["health"])

DATABASE_S = 3.0
BROKER_S = 1.0
NOT_READY = 503
AWAY = "does not answer"
STEWARD = "steward"
T = TypeVar("T")


class Health(BaseModel):
    """The process answers."""

    status: str
    version: str


class WorkerSeen(BaseModel):
    """A worker process, and how long ago it was last seen."""

    host: str
    owner: str
    age_s: float


class StewardSeen(BaseModel):
    """Who is the steward; its lease, which it renews several times before that runs out."""

    owner: str
    lease_left_s: float
    """Below 0: nobody does the steward's work."""


class Readiness(BaseModel):
    """What the service stands on. Ready: the database answers and is at this version's migration.

    All else is information. Without a broker everything works, a little later; and an API without workers still takes experiments.
    """

    ready: bool
    database: str
    """`ok`, or what is wrong with it."""
    migration: str | None = None
    migration_head: str
    broker: str
    """`ok`, `not used`, or what is wrong with it."""
    steward: StewardSeen | None = None
    workers: list[WorkerSeen] | None = None
    """Of each host the latest seen first. This and the steward are told to whoever may read."""
    database_file: str | None = None
    """The file of SQLite, told on loopback only: what lies where on a machine is not everybody's business."""


class Look(Generic[T]):
    """One look at something that may hang: whoever comes while it lasts shares it, so that threads cannot pile up."""

    def __init__(self, look: Callable[[], T], most_s: float) -> None:
        self._look, self._most_s = look, most_s
        self._running: asyncio.Task[T] | None = None

    async def take(self) -> T:
        """What it sees; TimeoutError where that takes too long."""
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(_threaded(self._look))
        return await asyncio.wait_for(asyncio.shield(self._running), self._most_s)


async def _threaded(look: Callable[[], T]) -> T:
    return await to_thread.run_sync(look)


class Lookout:
    """Looks at the database and at the broker, both at once."""

    def __init__(self, store: Database, broker_url: str) -> None:
        self._head = migrate.head()
        self._database = Look(partial(_look_at, store, self._head), DATABASE_S)
        self._broker = Look(partial(ping, broker_url), 2 * BROKER_S)

    async def look(self) -> Readiness:
        """All that is known."""
        found, broker = await asyncio.gather(self._database.take(), self._broker.take(), return_exceptions=True)
        said = broker if isinstance(broker, str) else AWAY
        if isinstance(found, tuple):
            at, steward, seen = found
            ready = at == self._head
            return Readiness(
                ready=ready, database="ok", migration=at, migration_head=self._head, broker=said, steward=steward, workers=seen
            )
        if isinstance(found, SQLAlchemyError | TimeoutError):
            log.warning("not ready", database=str(found) or f"no answer within {DATABASE_S} s")
            return Readiness(ready=False, database=AWAY, migration_head=self._head, broker=said)
        raise found


Found = tuple[str | None, StewardSeen | None, list[WorkerSeen] | None]


def _look_at(store: Database, head: str) -> Found:
    """Where the database is, who is the steward, and which workers there are. Of another version only the first is asked."""
    with store.read() as session:
        at = migrate.current_of(session)
        if at != head:
            return at, None, None
        steward = singletons.holder(session, STEWARD)
        seen = [WorkerSeen.model_validate(one, from_attributes=True) for one in workers.seen(session)]
        return at, StewardSeen.model_validate(steward, from_attributes=True) if steward else None, seen


def ping(broker_url: str) -> str:
    """How the broker is; asked over a connection of its own, since one that is kept may be broken without the broker being so."""
    if not broker_url:
        return "not used"
    from redis import Redis, RedisError  # noqa: PLC0415 - only a service with a broker needs it
    from redis.backoff import NoBackoff  # noqa: PLC0415 - as above
    from redis.retry import Retry  # noqa: PLC0415 - as above

    try:
        client = Redis.from_url(broker_url, socket_connect_timeout=BROKER_S, socket_timeout=BROKER_S, retry=Retry(NoBackoff(), 0))
        with client:
            client.ping()
    except ValueError:
        return "not asked: only redis:// and rediss:// are known"
    except RedisError as error:
        log.warning("the broker does not answer", why=type(error).__name__)
        return AWAY
    return "ok"


@router.get("/healthz")
async def healthz() -> Health:
    """Whether the process answers."""
    return Health(status="ok", version=version("expctl"))


@router.get("/readyz", responses={NOT_READY: {"model": Readiness, "description": "Not ready"}})
async def readyz(request: Request, response: Response) -> Readiness:
    """Whether the database answers and is at this version's migration; and what else there is to know, to whoever may read."""
    lookout: Lookout = request.app.state.lookout
    found = await lookout.look()
    if not found.ready:
        response.status_code = NOT_READY
    access = getattr(request.state, "access", None)
    if request.app.state.loopback_only:
        return found.model_copy(update={"database_file": _sqlite_file(database(request))})
    trusted = access is not None and access.may(Scope.READ)
    return found if trusted else found.model_copy(update={"steward": None, "workers": None})


def _sqlite_file(store: Database) -> str | None:
    url = store.engine.url
    return url.database if url.get_backend_name() == "sqlite" else None
