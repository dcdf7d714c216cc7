"""The shapes of a host, its shift, its window and what is asked of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel
from sqlmodel import Session

from service.api.moments import host_moment
from service.api.schemas import HostOut, host_out
from service.domain.host_requests import RequestKind, RequestStatus
from service.domain.host_wording import HostMoment, units_of
from service.domain.status import ShiftPhase
from service.store import shifts
from service.store.tables import HostRequestRow, HostRow, ShiftRow


class ShiftOut(BaseModel):
    """The shift that is open on a host."""

    id: int
    phase: ShiftPhase
    opened_at: datetime
    closing: str | None
    """Why it ends, once that is decided."""
    due_back: datetime | None
    """When the window closes that it was opened in."""
    units: list[str]
    parked: dict[str, Any]
    """What was serving, what proves that it serves, and what became of it."""
    failures: int
    """Failures in a row that count for a trip."""
    idle_since: datetime | None


class WindowOut(BaseModel):
    """When production may be parked."""

    window: str
    time_zone: str
    open: bool
    closes_at: datetime | None
    next_opening: datetime


class HostDetail(HostOut):
    """One host with its shift and its window, and what its latest check found."""

    created_at: datetime
    shift: ShiftOut | None
    window: WindowOut | None
    open_by: str | None
    """Who allowed one shift outside the window."""
    give_back_by: str | None
    """Who wants production back at once."""
    unreachable_since: datetime | None
    report: dict[str, Any]


class HostRequestOut(BaseModel):
    """Something asked of a host's worker, and the answer once it is there."""

    id: int
    host: str
    kind: RequestKind
    args: dict[str, Any]
    status: RequestStatus
    ok: bool | None
    """Whether it went well; null before it has finished."""
    answer: dict[str, Any]
    created_by: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


def host_detail(session: Session, row: HostRow) -> HostDetail:
    """A host's row with all that belongs to it."""
    moment = host_moment(session, row)
    shift = shifts.current(session, row.id or 0)
    return HostDetail(
        **host_out(session, row).model_dump(),
        created_at=row.created_at,
        shift=_shift(shift, moment) if shift else None,
        window=_window(moment),
        open_by=row.open_by,
        give_back_by=row.give_back_by,
        unreachable_since=row.unreachable_since,
        report=row.report,
    )


def _shift(row: ShiftRow, moment: HostMoment) -> ShiftOut:
    same = {name: getattr(row, name) for name in ShiftOut.model_fields if hasattr(row, name)}
    return ShiftOut(**same | {"due_back": moment.due_back, "units": units_of(moment), "failures": len(row.failures)})


def _window(moment: HostMoment) -> WindowOut | None:
    window = moment.config.opening
    if window is None:
        return None
    closes = window.closes_at(moment.now)
    return WindowOut(
        window=moment.config.window or "",
        time_zone=moment.config.time_zone,
        open=closes is not None,
        closes_at=closes.astimezone(window.zone) if closes else None,
        next_opening=window.next_opening(moment.now).astimezone(window.zone),
    )


def request_out(host: str, row: HostRequestRow) -> HostRequestOut:
    """A request's row as shown."""
    same = {name: getattr(row, name) for name in HostRequestOut.model_fields if hasattr(row, name)}
    if row.kind == RequestKind.PREFLIGHT:
        # Of experiments that are looked at, the names: their environments are for the worker.
        names = [one.get("name") if isinstance(one, dict) else one for one in row.args.get("experiments", ())]
        same["args"] = {"experiments": names}
    return HostRequestOut(**same | {"host": host})
