"""/timeline: the night, host by host."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from service.api import nights
from service.api.auth import READ
from service.api.deps import ReadSession
from service.api.experimentviews import experiments_out
from service.api.schemas import ExperimentOut
from service.domain.evening import DAY, moment_behind
from service.domain.status import ACTIVE
from service.pages import gantt
from service.pages.doors import PageRoute, Viewer
from service.pages.gantt import Bar, Lane, Span
from service.pages.rendering import address, page
from service.pages.words import tone
from service.store import timeline as store
from service.store.tables import StepRow, utc_now

router = APIRouter(route_class=PageRoute, include_in_schema=False, dependencies=[READ])

MOST = 100
"""Experiments that a picture is drawn of."""

From = Annotated[str | None, Query(alias="from", max_length=40)]


@router.get("/timeline")
def timeline(request: Request, session: ReadSession, who: Viewer, begins: From = None, foreseen: bool = True) -> Response:
    """Since the last evening, or since the time in the address."""
    del who
    now = utc_now()
    start, _ = nights.stretch(moment_behind(begins, now.astimezone()) if begins else None, None, now)
    found = store.timeline(session, start, now, most=MOST)
    known = experiments_out(session, [row for lane in found.lanes for row in lane.experiments])
    planned = [item for lane in found.lanes for item in nights.foreseen(session, lane.host.name, now)] if foreseen else []
    lanes = [_lane(lane, known, found.steps, planned, start, now) for lane in found.lanes]
    context = {
        "title": "Timeline",
        "picture": gantt.picture([lane for lane in lanes if lane.bars or lane.parked], now),
        "begins": start,
        "asked": begins or "",
        "items": sorted(known, key=lambda item: item.started_at or now),
        "left_out": found.left_out,
        "planned": planned,
        "earlier": (start - DAY).astimezone().isoformat(timespec="minutes"),
        "live": True,
        "twin": address("/v1/timeline", since=start.isoformat()),
    }
    return page(request, "timeline.html", context)


def _lane(
    lane: store.Lane,
    known: Sequence[ExperimentOut],
    steps: dict[int, list[StepRow]],
    planned: Sequence[ExperimentOut],
    start: datetime,
    now: datetime,
) -> Lane:
    name = lane.host.name
    bars = [_bar(item, steps.get(item.id, []), start, now) for item in known if item.host == name]
    bars += [_foreseen(item, now) for item in planned if item.host == name]
    return Lane(name, bars, [_parked(one, start, now) for one in lane.parked])


def _bar(item: ExperimentOut, steps: Sequence[StepRow], start: datetime, now: datetime) -> Bar:
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


def _foreseen(item: ExperimentOut, now: datetime) -> Bar:
    begins = max(item.starts_at or now, now)  # what was foreseen for a moment ago has not begun
    ends = max(item.eta or now, begins)
    return Bar(item.id, item.name, "wait", item.eta_text or item.where_text, Span(begins, ends, "whole"), [Span(begins, ends, "foreseen")])


def _parked(one: store.Parked, start: datetime, now: datetime) -> Span:
    begins = max(one.parked_at, start)
    return Span(begins, max(one.restored_at or now, begins), "parked")
