"""When a host's production may be parked besides its window, and when it is wanted back at once."""

from __future__ import annotations

from sqlmodel import Session, col, select

from service.domain.errors import Conflict
from service.domain.events import EventType
from service.domain.status import Status
from service.store import events, hosts, shifts
from service.store.tables import ExperimentRow, HostRow


def allow_opening(session: Session, host: str, actor: str) -> HostRow:
    """Let one shift open outside the window; used up when that shift closes. Nothing to do where nothing is parked.

    Conflict where no shift would open now: the permission would lie about and stop production some other day.
    """
    row = hosts.by_name(session, host)
    if not row.config.get("park") or row.open_by == actor:
        return row
    if row.blocked or row.paused:
        todo = "see `expctl host show`" if row.blocked else f"let it go on first: expctl resume --host {host}"
        raise Conflict(f"no shift can open on {host}", f"it is blocked: {row.blocked}" if row.blocked else "it is paused", todo)
    waiting = select(ExperimentRow.id).where(ExperimentRow.host_id == row.id, col(ExperimentRow.status) == Status.QUEUED)
    if shifts.current(session, row.id or 0) is None and session.exec(waiting.limit(1)).first() is None:
        raise Conflict(
            f"nothing waits for a shift on {host}", "no experiment is queued there", "submit one with `expctl submit FILE --now`"
        )
    row.open_by = actor
    session.add(row)
    events.emit(session, EventType.HOST_OPENING_ALLOWED, actor, host=host)
    return row


def withdraw_opening(session: Session, host: str, actor: str) -> HostRow:
    """Take the permission back. A shift that has opened by it goes on; `ask_give_back` ends one."""
    row = hosts.by_name(session, host)
    if row.open_by is not None:
        row.open_by = None
        session.add(row)
        events.emit(session, EventType.HOST_OPENING_WITHDRAWN, actor, host=host)
    return row


def ask_give_back(session: Session, host: str, actor: str) -> HostRow:
    """Have production brought back at once; the worker stops what runs and queues it again. Conflict where no shift is open."""
    row = hosts.by_name(session, host)
    if not row.config.get("park"):
        raise Conflict(f"there is no production to give back on {host}", "no unit is parked there", f"see `expctl pause --host {host}`")
    if shifts.current(session, row.id or 0) is None:
        raise Conflict(f"no shift is open on {host}", "production is not parked by expctl", f"see `expctl host show {host}`")
    if row.give_back_by is None:
        row.give_back_by = actor
        session.add(row)
        events.emit(session, EventType.HOST_GIVE_BACK_REQUESTED, actor, host=host)
    return row
