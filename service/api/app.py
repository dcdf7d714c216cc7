"""The API as an app: routes, problems, and the database it stands on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, FastAPI, Response
from pydantic import BaseModel

from service.api import compare, experiments, live, problems, retention, steering, submission
from service.api.deps import ReadSession
from service.api.origin import LoopbackOnly
from service.api.schemas import HostOut, host_out
from service.store import hosts, migrate
from service.store.database import Database

router = APIRouter()


class Health(BaseModel):
    """The process answers."""

    status: str
    version: str


class Readiness(BaseModel):
    """What the service stands on."""

    ready: bool
    database: str
    migration: str | None
    migration_head: str


@router.get("/healthz", tags=["health"])
def healthz() -> Health:
    """Whether the process answers."""
    return Health(status="ok", version=version("expctl"))


@router.get("/readyz", tags=["health"])
def readyz(session: ReadSession, response: Response) -> Readiness:
    """Whether the database answers and is at this version's migration."""
    head, at = migrate.head(), migrate.current_of(session)
    if at != head:
        response.status_code = 503
    return Readiness(ready=at == head, database="ok", migration=at, migration_head=head)


@router.get("/v1/hosts", tags=["hosts"])
def all_hosts(session: ReadSession) -> list[HostOut]:
    """Every host."""
    return [host_out(session, row) for row in hosts.every(session)]


@router.get("/v1/hosts/{name}", tags=["hosts"])
def one_host(session: ReadSession, name: str) -> HostOut:
    """One host."""
    return host_out(session, hosts.by_name(session, name))


def create_app(database: Database, *, loopback_only: bool = False) -> FastAPI:
    """The app on a database that is migrated already. `loopback_only`: answer to this machine's own names and pages only."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        del app
        yield {}
        database.close()

    app = FastAPI(title="expctl", version=version("expctl"), lifespan=lifespan)
    app.state.database = database
    problems.install(app)
    if loopback_only:
        app.add_middleware(LoopbackOnly)
    app.include_router(router)
    app.include_router(submission.router)
    app.include_router(experiments.router)
    app.include_router(steering.router)
    app.include_router(live.router)
    app.include_router(retention.router)
    app.include_router(compare.router)
    return app
