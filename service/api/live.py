"""Server-sent events that resume where they were cut: everything that happens, and an engine's log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import EventSourceResponse, ServerSentEvent

from service.api.auth import READ
from service.api.deps import database
from service.api.schemas import LogPiece
from service.api.standing import Standing, standing
from service.domain.events import Event
from service.domain.status import Status
from service.store import events, experiments, steps
from service.store.database import Database

router = APIRouter(tags=["events"], dependencies=[READ])

Here = Annotated[Standing, Depends(standing)]

POLL_S = 0.25
MAX_ID = 2**62

LastEventId = Annotated[str | None, Header(pattern=r"^\d{1,18}$", description="go on after this id")]
After = Annotated[int | None, Query(ge=0, le=MAX_ID, description="the same, for clients that cannot set headers; 0 is everything")]
Id = Annotated[int, Path(ge=1, le=2**31 - 1)]


@router.get("/v1/events", response_class=EventSourceResponse)
async def stream(
    request: Request,
    here: Here,
    last_event_id: LastEventId = None,
    after: After = None,
    experiment_id: Annotated[int | None, Query(ge=1, le=2**31 - 1, description="only of this experiment")] = None,
) -> AsyncIterator[ServerSentEvent]:
    """Events as they are written, oldest first. Without a place to go on from: only what happens from now on."""
    store = database(request)
    if last_event_id is not None:
        at = int(last_event_id)
    elif after is not None:
        at = after
    else:
        at = await run_in_threadpool(_latest, store)
    yield ServerSentEvent(comment="expctl events", retry=1000)
    while not await request.is_disconnected() and await here.lasts():
        found = await run_in_threadpool(_since, store, at, experiment_id)
        for event in found:
            at = event.id
            yield ServerSentEvent(raw_data=event.model_dump_json(), event=event.type, id=str(event.id))
        if not found:
            await asyncio.sleep(POLL_S)


async def _known(request: Request, experiment_id: Id) -> int:
    """Checked before the stream begins, so that an unknown id is a 404 and no broken stream."""
    await run_in_threadpool(_read_log, database(request), experiment_id, 0)
    return experiment_id


@router.get("/v1/experiments/{experiment_id}/logs/stream", response_class=EventSourceResponse)
async def log_stream(
    request: Request, known: Annotated[int, Depends(_known)], here: Here, last_event_id: LastEventId = None, after: After = None
) -> AsyncIterator[ServerSentEvent]:
    """The engine's log as it is copied, from its start or after a piece; an event `end` when nothing more will come."""
    store = database(request)
    at = int(last_event_id) if last_event_id is not None else after or 0
    while not await request.is_disconnected() and await here.lasts():
        pieces, finished = await run_in_threadpool(_read_log, store, known, at)
        for piece in pieces:
            at = piece.id
            yield ServerSentEvent(raw_data=piece.model_dump_json(), event="log", id=str(at))
        if finished and not pieces:
            yield ServerSentEvent(raw_data="{}", event="end")
            return
        if not pieces:
            await asyncio.sleep(POLL_S)


def _read_log(store: Database, experiment_id: int, at: int) -> tuple[list[LogPiece], bool]:
    with store.read() as session:
        finished = experiments.get(session, experiment_id).status == Status.FINISHED
        return [LogPiece.model_validate(row, from_attributes=True) for row in steps.log_after(session, experiment_id, at)], finished


def _latest(store: Database) -> int:
    with store.read() as session:
        return events.latest(session)


def _since(store: Database, at: int, experiment_id: int | None) -> list[Event]:
    with store.read() as session:
        return events.since(session, at, experiment_id=experiment_id)
