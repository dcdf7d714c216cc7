"""/timeline: the night, host by host."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from sqlmodel import Session

from service.api.auth import READ
from service.api.deps import ReadSession
from service.api.experimentviews import experiments_out
from service.api.schemas import ExperimentOut
from service.domain.errors import UsageError
from service.domain.status import ACTIVE, Status
from service.pages import gantt
from service.pages.doors import PageRoute, Viewer
from service.pages.gantt import Bar, Lane, Span
from service.pages.rendering import page
from service.pages.tonight import last_evening
from service.pages.words import tone
from service.store import board, hosts
from service.store.tables import HostRow, ShiftRow, StepRow, utc_now

router = APIRouter(route_class=PageRoute, include_in_schema=False, dependencies=[READ])

FORESEEN = 12
"""Of what waits on a host, so much is drawn."""
HORIZON = timedelta(hours=16)
DAY = timedelta(days=1)

From = Annotated[str | None, Query(alias="from", max_length=40)]


@router.get("/timeline")
def timeline(request: Request, session: ReadSession, who: Viewer, begins: From = None, foreseen: bool = True) -> Response:
    """Since the last evening, or since the time in the address."""
    del who
    now = utc_now()
    start = _start(begins, now)
    rows = board.touched(session, board.since(session, start))
    known = experiments_out(session, [row for row in rows if row.finished_at is None or row.finished_at > start])
    steps = board.steps_of(session, [item.id for item in known])
    planned = _planned(session, now) if foreseen else []
    shifts = board.shifts_since(session, start)
    lanes = [_lane(row, [item for item in known if item.host == row.name], steps, planned, shifts, start) for row in hosts.every(session)]
    context = {
        "title": "Timeline",
        "picture": gantt.picture([lane for lane in lanes if lane.bars or lane.parked], now),
        "begins": start,
        "asked": begins or "",
        "foreseen": foreseen,
        "items": sorted(known, key=lambda item: item.started_at or now),
        "planned": planned,
        "earlier": (start - DAY).astimezone().isoformat(timespec="minutes"),
        "live": True,
        "twin": None,
    }
    return page(request, "timeline.html", context)


def _start(text: str | None, now: datetime) -> datetime:
    """`18:00` is the last such time; else a date and time."""
    local = now.astimezone()
    if not text:
        return last_evening(local)
    try:
        if len(text) <= len("18:00"):
            hour = datetime.strptime(text, "%H:%M").replace(tzinfo=local.tzinfo)
            found = local.replace(hour=hour.hour, minute=hour.minute, second=0, microsecond=0)
            return found if found <= local else found - DAY
        given = datetime.fromisoformat(text.replace(" ", "+"))  # a plus that an address has taken for a blank
    except ValueError:
        raise UsageError(f"{text!r} is no time", "", "write 18:00, or 2026-11-30T18:00") from None
    return given if given.tzinfo else given.replace(tzinfo=local.tzinfo)


def _planned(session: Session, now: datetime) -> list[ExperimentOut]:
    rows = [
        row for host in hosts.every(session) for row in board.open_rows(session, statuses=(Status.QUEUED,), host=host.name, limit=FORESEEN)
    ]
    return [item for item in experiments_out(session, rows) if item.starts_at and item.eta and item.eta < now + HORIZON]


def _lane(
    host: HostRow,
    items: Sequence[ExperimentOut],
    steps: dict[int, list[StepRow]],
    planned: Sequence[ExperimentOut],
    shifts: Sequence[ShiftRow],
    start: datetime,
) -> Lane:
    bars = [_bar(item, steps.get(item.id, []), start) for item in items]
    bars += [_foreseen(item) for item in planned if item.host == host.name]
    parked = [span for shift in shifts if shift.host_id == host.id and (span := _parked(shift, start)) is not None]
    return Lane(host.name, bars, parked)


def _bar(item: ExperimentOut, steps: Sequence[StepRow], start: datetime) -> Bar:
    now = utc_now()
    begins = max(item.started_at or now, start)
    ends = item.finished_at or now
    pieces = [
        Span(max(step.started_at, start), min(step.finished_at or ends, ends), step.name)
        for step in steps
        if step.attempt == item.attempt and (step.finished_at or ends) > start
    ]
    if item.status in ACTIVE and item.eta and item.eta > now:
        pieces.append(Span(now, item.eta, "foreseen"))
        ends = item.eta
    return Bar(item.id, item.name, tone(item), item.status_text, Span(begins, max(ends, begins), "whole"), pieces)


def _foreseen(item: ExperimentOut) -> Bar:
    begins, ends = item.starts_at or utc_now(), item.eta or utc_now()
    return Bar(item.id, item.name, "wait", item.eta_text or item.where_text, Span(begins, ends, "whole"), [Span(begins, ends, "foreseen")])


def _parked(shift: ShiftRow, start: datetime) -> Span | None:
    """While production did not serve, as the shift wrote it down."""
    at = shift.parked.get("parked_at")
    if at is None:
        return None
    begins = datetime.fromtimestamp(at, start.tzinfo)
    back = shift.parked.get("restored_at")
    ends = datetime.fromtimestamp(back, start.tzinfo) if back is not None else shift.closed_at or utc_now()
    return Span(max(begins, start), max(ends, begins, start), "parked")
