"""Hosts and their one lease: claim, heartbeat, release, and the guard that every write of a worker passes."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from sqlalchemy import case, or_, update
from sqlmodel import Session, col, select

from service.domain.errors import ClaimLost, NotFound
from service.domain.events import EventType
from service.store import events
from service.store.database import db_now
from service.store.tables import HostRow, InstallationRow

LEASE_S = 60.0
HEARTBEAT_S = 15.0
NOT_RESTORED = "NOT RESTORED"
"""How the reason of a block begins that only production itself can lift."""


@dataclass(frozen=True)
class Lease:
    """The right to act on a host until it expires or somebody claims the host anew."""

    host_id: int
    host: str
    owner: str
    token: str
    fence: int


def register(session: Session, name: str, transport: str, config: dict[str, Any]) -> HostRow:
    """Add a host, or bring its settings up to date."""
    row = session.exec(select(HostRow).where(HostRow.name == name)).one_or_none()
    if row is None:
        row = HostRow(name=name, transport=transport, config=config)
    else:
        row.transport, row.config = transport, config
    session.add(row)
    session.flush()
    return row


def by_name(session: Session, name: str) -> HostRow:
    """The host of that name; NotFound names the known ones."""
    row = session.exec(select(HostRow).where(HostRow.name == name)).one_or_none()
    if row is None:
        known = ", ".join(host.name for host in every(session)) or "none yet"
        raise NotFound(f"host {name} is not known", f"known: {known}", "write one of these as `host:` in the experiment file")
    return row


def every(session: Session) -> list[HostRow]:
    """All hosts by name."""
    return list(session.exec(select(HostRow).order_by(HostRow.name)))


def claim(session: Session, host: str, owner: str, lease_s: float = LEASE_S) -> Lease | None:
    """Take the host if nobody holds a live lease on it. The fence grows with every claim."""
    token = secrets.token_hex(16)
    # A lease that is there and may be taken has run out: whoever held it died, or was cut off.
    lost = case((col(HostRow.lease_token).is_not(None), 1), else_=0)
    free = or_(col(HostRow.lease_token).is_(None), col(HostRow.lease_expires) < db_now())
    statement = (
        update(HostRow)
        .where(col(HostRow.name) == host, free)
        .values(lease_owner=owner, lease_token=token, lease_expires=db_now() + lease_s, fence=HostRow.fence + 1)
        .values(claims_lost=HostRow.claims_lost + lost)
        .returning(col(HostRow.id), col(HostRow.fence))
        .execution_options(synchronize_session=False)
    )
    taken = session.execute(statement).one_or_none()
    return None if taken is None else Lease(taken[0], host, owner, token, taken[1])


def heartbeat(session: Session, lease: Lease, lease_s: float = LEASE_S) -> None:
    """Extend the lease. ClaimLost if somebody else has claimed the host; an expired but untaken lease is still ours."""
    statement = (
        update(HostRow)
        .where(col(HostRow.id) == lease.host_id, col(HostRow.lease_token) == lease.token, col(HostRow.fence) == lease.fence)
        .values(lease_expires=db_now() + lease_s)
        .returning(col(HostRow.id))
        .execution_options(synchronize_session=False)
    )
    if session.execute(statement).one_or_none() is None:
        raise ClaimLost(f"{lease.owner} no longer holds {lease.host}")


def guard(session: Session, lease: Lease) -> None:
    """Every write of a worker passes here: ClaimLost unless the lease is live. Locks the host's row until the commit."""
    statement = (
        select(HostRow.id)
        .where(HostRow.id == lease.host_id, HostRow.lease_token == lease.token, HostRow.fence == lease.fence)
        .where(col(HostRow.lease_expires) >= db_now())
        .with_for_update()
    )
    if session.exec(statement).one_or_none() is None:
        raise ClaimLost(f"{lease.owner} no longer holds {lease.host}")


def holds(session: Session, lease: Lease) -> bool:
    """Whether the lease is live, without locking anything: for polls and before side effects on the host."""
    mine = select(HostRow.id).where(HostRow.id == lease.host_id, HostRow.lease_token == lease.token, HostRow.fence == lease.fence)
    return session.exec(mine.where(col(HostRow.lease_expires) >= db_now())).one_or_none() is not None


def release(session: Session, lease: Lease) -> None:
    """Hand the lease back, if it is still ours."""
    session.execute(
        update(HostRow)
        .where(col(HostRow.id) == lease.host_id, col(HostRow.lease_token) == lease.token)
        .values(lease_owner=None, lease_token=None, lease_expires=None)
        .execution_options(synchronize_session=False)
    )


def silent(session: Session) -> list[HostRow]:
    """Hosts whose lease ran out without being handed back: their worker died or is cut off."""
    return list(session.exec(select(HostRow).where(col(HostRow.lease_token).is_not(None), col(HostRow.lease_expires) < db_now())))


def attended(session: Session, host_id: int) -> bool:
    """Whether a worker holds a live lease on the host."""
    query = select(HostRow.id).where(HostRow.id == host_id, col(HostRow.lease_token).is_not(None), col(HostRow.lease_expires) >= db_now())
    return session.exec(query).one_or_none() is not None


def installation_id(session: Session) -> str:
    """Which installation this database is: what a host tells two of them apart by."""
    return session.exec(select(InstallationRow.service_id)).one()


def block(session: Session, lease: Lease, why: str | None) -> None:
    """Let nothing start on a host, or (None) let it again; tells so where that is news."""
    guard(session, lease)
    row = by_name(session, lease.host)
    if row.blocked == why:
        return
    kind = EventType.HOST_BLOCKED if why is not None else EventType.HOST_CLEARED
    events.emit(session, kind, f"worker:{lease.owner}", host=lease.host, data={"why": why or row.blocked})
    row.blocked = why
    session.add(row)
    session.flush()
