"""The API as an app: routes, problems, and the database it stands on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from pydantic import BaseModel

from service.api import compare, docs, experiments, hosts, live, problems, retention, steering, submission
from service.api.deps import ReadSession, database
from service.api.limits import BodyLimit
from service.api.origin import LoopbackOnly
from service.store import migrate
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
    database_file: str | None = None
    """The file of SQLite, told on loopback only: what lies where on a machine is not everybody's business."""


@router.get("/healthz", tags=["health"])
def healthz() -> Health:
    """Whether the process answers."""
    return Health(status="ok", version=version("expctl"))


@router.get("/readyz", tags=["health"])
def readyz(request: Request, session: ReadSession, response: Response) -> Readiness:
    """Whether the database answers and is at this version's migration."""
    head, at = migrate.head(), migrate.current_of(session)
    if at != head:
        response.status_code = 503
    file = _sqlite_file(database(request)) if request.app.state.loopback_only else None
    return Readiness(ready=at == head, database="ok", migration=at, migration_head=head, database_file=file)


def _sqlite_file(store: Database) -> str | None:
    url = store.engine.url
    return url.database if url.get_backend_name() == "sqlite" else None


def create_app(store: Database, *, loopback_only: bool = False) -> FastAPI:
    """The app on a database that is migrated already. `loopback_only`: answer to this machine's own names and pages only."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        del app
        yield {}
        store.close()

    app = FastAPI(title="expctl", version=version("expctl"), lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.database = store
    app.state.loopback_only = loopback_only
    problems.install(app)
    app.add_middleware(BodyLimit)
    if loopback_only:
        app.add_middleware(LoopbackOnly)
    app.include_router(router)
    app.include_router(docs.router)
    app.include_router(submission.router)
    app.include_router(experiments.router)
    app.include_router(steering.router)
    app.include_router(hosts.router)
    app.include_router(live.router)
    app.include_router(retention.router)
    app.include_router(compare.router)
    return app
