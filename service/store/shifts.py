"""Shifts: one stretch of work on a host. A shift open without a live lease is a promise that the next worker keeps."""

from __future__ import annotations

from sqlmodel import Session, col, select

from service.domain.events import EventType
from service.store import events, hosts
from service.store.hosts import Lease
from service.store.tables import ShiftRow, utc_now


def open_or_resume(session: Session, lease: Lease) -> ShiftRow:
    """The host's open shift, or a new one."""
    hosts.guard(session, lease)
    row = session.exec(select(ShiftRow).where(ShiftRow.host_id == lease.host_id, col(ShiftRow.closed_at).is_(None))).one_or_none()
    if row is None:
        row = ShiftRow(host_id=lease.host_id)
        session.add(row)
        session.flush()
        events.emit(session, EventType.SHIFT_OPENED, f"worker:{lease.owner}", host=lease.host, data={"shift": row.id})
    return row


def close(session: Session, lease: Lease, shift_id: int, why: str) -> None:
    """End a shift and say why."""
    hosts.guard(session, lease)
    row = session.get(ShiftRow, shift_id)
    if row is None or row.closed_at is not None:
        return
    row.closed_at, row.closing = utc_now(), why
    session.add(row)
    events.emit(session, EventType.SHIFT_CLOSED, f"worker:{lease.owner}", host=lease.host, data={"shift": shift_id, "why": why})
