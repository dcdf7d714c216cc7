"""Shifts: one stretch of work on a host. A shift open without a live lease is a promise that the next worker keeps."""

from __future__ import annotations

from typing import Any

from sqlmodel import Session, col, select

from service.domain.events import EventType
from service.domain.status import Status
from service.store import events, hosts
from service.store.hosts import Lease
from service.store.tables import ExperimentRow, HostRow, ShiftRow, utc_now


def current(session: Session, host_id: int) -> ShiftRow | None:
    """The host's open shift."""
    return session.exec(select(ShiftRow).where(ShiftRow.host_id == host_id, col(ShiftRow.closed_at).is_(None))).one_or_none()


def open_or_resume(session: Session, lease: Lease) -> ShiftRow:
    """The host's open shift, or a new one."""
    hosts.guard(session, lease)
    row = current(session, lease.host_id)
    if row is None:
        row = ShiftRow(host_id=lease.host_id)
        session.add(row)
        session.flush()
        events.emit(session, EventType.SHIFT_OPENED, f"worker:{lease.owner}", host=lease.host, data={"shift": row.id})
    return row


def get(session: Session, shift_id: int) -> ShiftRow:
    """One shift that is known to exist."""
    row = session.get(ShiftRow, shift_id)
    if row is None:
        raise LookupError(f"shift {shift_id} does not exist")
    return row


def note(session: Session, lease: Lease, shift_id: int, **values: Any) -> None:
    """Write down how far a shift is: `phase`, `parked`, `failures`, `idle_since`, `closing`."""
    hosts.guard(session, lease)
    row = get(session, shift_id)
    for name, value in values.items():
        setattr(row, name, value)
    session.add(row)
    session.flush()


def decide_closing(session: Session, lease: Lease, shift_id: int, why: str) -> None:
    """Decide that a shift ends. The first reason stays."""
    hosts.guard(session, lease)
    row = get(session, shift_id)
    if row.closing is None:
        row.closing = why
        session.add(row)


def close(session: Session, lease: Lease, shift_id: int, why: str) -> None:
    """End a shift and say why. What was allowed or asked for this shift alone is used up."""
    hosts.guard(session, lease)
    row = session.get(ShiftRow, shift_id)
    if row is None or row.closed_at is not None:
        return
    row.closed_at, row.closing, row.phase = utc_now(), row.closing or why, "closed"
    session.add(row)
    host = session.get(HostRow, lease.host_id)
    if host is not None:
        if host.give_back_by is not None and not host.paused:
            # Or what waits would park it again at once, against the word of whoever wanted it back.
            host.paused = True
            events.emit(session, EventType.QUEUE_PAUSED, host.give_back_by, host=lease.host, data={"why": "production was given back"})
        host.open_by = host.give_back_by = None
        session.add(host)
    actor = f"worker:{lease.owner}"
    events.emit(session, EventType.SHIFT_CLOSED, actor, host=lease.host, data={"shift": shift_id, "why": row.closing})
    waiting = select(ExperimentRow.id).where(ExperimentRow.host_id == lease.host_id, ExperimentRow.status == Status.QUEUED)
    if session.exec(waiting.limit(1)).first() is None:
        events.emit(session, EventType.QUEUE_DRAINED, actor, host=lease.host, data={"shift": shift_id})
