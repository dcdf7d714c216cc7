"""/queue: everything that runs or waits in its order, and what ended, with what may be done to each."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from service.api.auth import READ
from service.api.deps import ReadSession
from service.api.endings import ended
from service.api.experimentviews import experiments_out
from service.domain.access import Scope
from service.domain.status import Status
from service.pages.doors import PageRoute, Viewer
from service.pages.rendering import page
from service.store import board, hosts
from service.store.tables import ExperimentRow

router = APIRouter(route_class=PageRoute, include_in_schema=False, dependencies=[READ])

SIZE, LATEST = 40, 20
FILTERS = ("running", "queued", "held", "finished")

Before = Annotated[int | None, Query(ge=1, le=2**62)]


@router.get("/queue")
def queue(
    request: Request,
    session: ReadSession,
    who: Viewer,
    status: Annotated[Status | None, Query()] = None,
    host: Annotated[str | None, Query(max_length=200)] = None,
    skip: Annotated[int, Query(ge=0, le=10**6)] = 0,
    before: Before = None,
) -> Response:
    """The queue. Filters stand in the address, so that it may be kept and sent."""
    host = host or None
    finished_only = status == Status.FINISHED
    wanted = board.OPEN if status is None else (status, Status.STOPPING) if status == Status.RUNNING else (status,)
    rows = [] if finished_only else board.open_rows(session, statuses=wanted, host=host, limit=SIZE, offset=skip)
    numbers = board.counts(session, host)
    total = 0 if finished_only else sum(numbers.get(one, 0) for one in wanted)
    ended_rows: list[ExperimentRow] = []
    older: int | None = None
    if status in {None, Status.FINISHED} and not skip:
        ended_rows, older = board.ended_rows(session, host=host, limit=SIZE if finished_only else LATEST, before=before)
    waiting = experiments_out(session, rows)
    context = {
        "title": "Queue",
        "open": waiting,
        "neighbours": _neighbours([item.id for item in waiting if item.status in {Status.QUEUED, Status.HELD}]),
        "ended": ended(session, ended_rows),
        "numbers": numbers,
        "total": total,
        "skip": skip,
        "size": SIZE,
        "older": older,
        "status": status,
        "host": host,
        "hosts": [row.name for row in hosts.every(session)],
        "mine": {item.id for item in waiting if who.may(Scope.ADMIN) or (item.created_by == who.name and who.may(Scope.SUBMIT))},
        "live": not skip and before is None,
        "twin": "/v1/experiments",
    }
    return page(request, "queue.html", context)


def _neighbours(ids: list[int]) -> dict[int, int]:
    """Each that waits -> the one before it, so that it can be moved up by one."""
    return dict(zip(ids[1:], ids, strict=False))
