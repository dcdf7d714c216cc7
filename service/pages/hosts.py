"""/hosts: each host's shift, what is parked there, its GPUs, and what an admin may do."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from fastapi import APIRouter, Request, Response
from sqlmodel import Session

from service.api.auth import READ
from service.api.deps import ReadSession
from service.api.hostviews import HostDetail, HostRequestOut, host_detail, request_out
from service.domain.access import Scope
from service.domain.status import Status
from service.pages.doors import PageRoute, Viewer
from service.pages.rendering import page
from service.store import board, hostrequests, hosts, workers
from service.store.tables import ExperimentRow, HostRow

router = APIRouter(route_class=PageRoute, include_in_schema=False, dependencies=[READ])

ASKED = 3
SEEN_S = 60.0
"""A worker that was not seen for longer is not there: an idle one shows itself more often."""


class Gpu(NamedTuple):
    """One GPU as an experiment left it; empty is not known."""

    number: int
    name: str
    used_mib: int | None
    temperature: str
    draw: str
    limit: str


class Card(NamedTuple):
    """One host."""

    host: HostDetail
    running: ExperimentRow | None
    worker: str
    """Who works there, or waits for work; empty where nobody was seen lately."""
    numbers: dict[str, int]
    gpus: list[Gpu]
    gpus_of: int | None
    """The experiment that found them so: the one that ran last."""
    asked: list[HostRequestOut]
    checked_at: datetime | None


@router.get("/hosts")
def all_hosts(request: Request, session: ReadSession, who: Viewer) -> Response:
    """Every host."""
    waiting = {one.host: f"{one.owner}, waiting for work" for one in reversed(workers.seen(session)) if one.age_s < SEEN_S}
    cards = [_card(session, row, waiting.get(row.name, "")) for row in hosts.every(session)]
    context = {"title": "Hosts", "cards": cards, "admin": who.may(Scope.ADMIN), "live": True, "twin": "/v1/hosts"}
    return page(request, "hosts.html", context)


def _card(session: Session, row: HostRow, waiting: str) -> Card:
    active = board.open_rows(session, statuses=(Status.RUNNING, Status.STOPPING), host=row.name, limit=1)
    lately, _ = board.ended_rows(session, host=row.name, limit=3)
    seen = next((one for one in (*active, *lately) if one.facts.get("gpus")), None)
    host = host_detail(session, row)
    return Card(
        host=host,
        worker=host.worker or waiting,
        running=active[0] if active else None,
        numbers=board.counts(session, row.name),
        gpus=_gpus(seen.facts) if seen else [],
        gpus_of=seen.id if seen else None,
        asked=[request_out(row.name, one) for one in hostrequests.listing(session, row.name, ASKED)],
        checked_at=datetime.fromisoformat(host.report["at"]) if host.report.get("at") else None,
    )


def _gpus(facts: dict[str, Any]) -> list[Gpu]:
    """What the last look of an experiment found; temperatures and power are those after its last measurement."""
    measured = [value for key, value in facts.items() if key.startswith("gpu_state@") and isinstance(value, dict)]
    after = {one.get("uuid"): one for one in (measured[-1].get("after") or [] if measured else [])}
    found: list[Gpu] = []
    for gpu in facts["gpus"]:
        state = after.get(gpu.get("uuid"), {})
        figures = (str(state.get(key, "")) for key in ("temperature.gpu", "power.draw", "power.limit"))
        found.append(Gpu(gpu.get("index", len(found)), str(gpu.get("name") or ""), gpu.get("used_mib"), *figures))
    return found
