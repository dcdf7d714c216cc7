"""/: how the night is going, in one screen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fastapi import APIRouter, Request, Response
from sqlmodel import Session

from service.api.auth import READ
from service.api.deps import ReadSession
from service.api.endings import ended
from service.api.experimentviews import experiment_detail, experiments_out
from service.api.schemas import ExperimentDetail, ExperimentOut, HostOut, host_out
from service.domain.evening import last_evening
from service.domain.figures import counted
from service.domain.status import Status
from service.pages.doors import PageRoute, Viewer
from service.pages.rendering import page
from service.pages.strip import Part, strip
from service.store import board, hosts, outbox, steps
from service.store.tables import HostRow, utc_now

router = APIRouter(route_class=PageRoute, include_in_schema=False, dependencies=[READ])

NEXT, LATEST = 3, 8


class Place(NamedTuple):
    """A host, what runs on it, and what comes next."""

    host: HostOut
    running: ExperimentDetail | None
    strip: list[Part]
    following: list[ExperimentOut]
    waiting: int


@router.get("/")
def tonight(request: Request, session: ReadSession, who: Viewer) -> Response:
    """What runs, what waits and until when, what ended, and whether anybody is needed."""
    del who
    places = [_place(session, row) for row in hosts.every(session)]
    rows, _ = board.ended_rows(session, limit=LATEST)
    context = {
        "title": "Tonight",
        "places": places,
        "ended": ended(session, rows),
        "alarms": list(_alarms(session, places)),
        "headline": headline(session, places),
        "live": True,
        "twin": "/v1/night",
    }
    return page(request, "tonight.html", context)


def _place(session: Session, row: HostRow) -> Place:
    found = board.open_rows(session, statuses=(Status.RUNNING, Status.STOPPING, Status.QUEUED), host=row.name, limit=NEXT + 1)
    active = found[0] if found and found[0].status != Status.QUEUED else None
    running = experiment_detail(session, active, steps.every(session, active.id or 0)) if active else None
    queued = found[1:] if active else found[:NEXT]
    return Place(
        host=host_out(session, row),
        running=running,
        strip=strip(running) if running else [],
        following=experiments_out(session, queued),
        waiting=board.counts(session, row.name).get(Status.QUEUED, 0),
    )


def _alarms(session: Session, places: list[Place]) -> Iterator[str]:
    """What a person has to look at; nothing else."""
    for place in places:
        host = place.host
        if host.needs_person:
            yield f"{host.name}: {host.shift_text}"
        if host.blocked:
            yield f"{host.name} is blocked: {host.blocked}"
        elif host.worker_silent:
            yield f"{host.name}: its worker has gone silent"
    dead = sum(one.get("dead", 0) for one in outbox.counts(session).values())
    if dead:
        yield f"{counted(dead, 'message')} could not be delivered"


def headline(session: Session, places: list[Place]) -> str:
    """Such as `1 running, 3 waiting, 4 done since 18:00, 1 not`."""
    running = sum(place.running is not None for place in places)
    waiting = sum(place.waiting for place in places)
    evening = last_evening(utc_now().astimezone())
    outcomes = [str(event.data.get("outcome")) for event in board.finishes(session, board.since(session, evening))]
    done = outcomes.count("succeeded")
    when = f"{evening:%H:%M}" + ("" if evening.date() == utc_now().astimezone().date() else " yesterday")
    parts = [f"{running} running", f"{waiting} waiting", f"{done} done since {when}"]
    parts += [f"{len(outcomes) - done} not"] if len(outcomes) > done else []
    return ", ".join(parts)
