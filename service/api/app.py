"""The API as an app: routes, problems, and the database it stands on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI

from service.api import (
    auth,
    compare,
    deliveries,
    docs,
    experiments,
    health,
    hosts,
    live,
    metrics,
    nights,
    notifiers,
    preflight,
    problems,
    retention,
    steering,
    submission,
    tokens,
)
from service.api.headers import SecurityHeaders, security_headers
from service.api.health import Lookout
from service.api.limits import BodyLimit
from service.api.metrics import Collector
from service.api.origin import LoopbackOnly
from service.api.ratelimit import Streams
from service.api.signin import Authentication
from service.pages import site
from service.settings import Settings
from service.store import news
from service.store.database import Database
from service.wake import Waker

ROUTERS = tuple(
    part.router
    for part in (
        *(health, docs, submission, experiments, steering, hosts, preflight, live),
        *(retention, compare, nights, tokens, notifiers, deliveries, metrics),
    )
)


def create_app(store: Database, *, loopback_only: bool = False, waker: Waker | None = None, settings: Settings | None = None) -> FastAPI:
    """The app on a database that is migrated already.

    `loopback_only`: answer to this machine's own names and pages only, and to them without a token. Otherwise every request needs
    one, whatever address the app listens on: a proxy on the same machine may hand on what comes from anywhere.
    """
    chosen = settings or Settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        # What a route needs is built when it is looked at for the first time; nobody's first page should wait for all of them.
        for route in app.routes:
            route.matches({"type": "http", "method": "GET", "path": "/", "root_path": "", "headers": []})
        yield {}
        store.close()

    app = FastAPI(title="expctl", version=version("expctl"), lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.database = store
    app.state.settings = chosen
    if waker is not None:
        news.on_commit(store, waker.wake)
    app.state.loopback_only = loopback_only
    app.state.lookout = Lookout(store, chosen.broker_url)
    app.state.collector = Collector(store, chosen.lease_s)
    app.state.headers = security_headers(chosen.base_url)
    # Whoever reaches a service without tokens has its machine already; nothing is gained by slowing them down.
    app.state.streams = Streams(0 if loopback_only else chosen.streams)
    problems.install(app)
    # The last one added sees a request first.
    app.add_middleware(BodyLimit)
    if loopback_only:
        app.add_middleware(LoopbackOnly)
    else:
        app.add_middleware(Authentication, store=store, writes_per_minute=chosen.writes_per_minute, base_url=chosen.base_url)
    app.add_middleware(SecurityHeaders, headers=app.state.headers)
    for router in ROUTERS:
        app.include_router(router)
    site.install(app)
    auth.document(app, ROUTERS, optional=loopback_only)
    return app
