"""Which worker processes there are, idle ones too: each leaves a trace as long as it lives."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import delete, insert, update
from sqlmodel import Session, col, select

from service.store.database import db_now
from service.store.tables import HostRow, WorkerRow, utc_now


class Seen(NamedTuple):
    """A worker process, and how long ago it was last seen."""

    host: str
    owner: str
    age_s: float


def beat(session: Session, host_id: int, owner: str, version: str) -> None:
    """This worker of the host lives."""
    mine = update(WorkerRow).where(col(WorkerRow.host_id) == host_id, col(WorkerRow.owner) == owner)
    known = session.execute(mine.values(seen=db_now(), version=version).returning(col(WorkerRow.owner))).one_or_none()
    if known is None:
        values = {"host_id": host_id, "owner": owner, "version": version, "started_at": utc_now(), "seen": db_now()}
        session.execute(insert(WorkerRow).values(**values))


def leave(session: Session, host_id: int, owner: str) -> None:
    """This worker goes, and says so."""
    session.execute(delete(WorkerRow).where(col(WorkerRow.host_id) == host_id, col(WorkerRow.owner) == owner))


def seen(session: Session) -> list[Seen]:
    """Every worker that has not left, by host; of each host the latest seen first. One that died stays for a while."""
    age = (db_now() - col(WorkerRow.seen)).label("age")
    query = select(HostRow.name, WorkerRow.owner, age).join(HostRow, col(HostRow.id) == WorkerRow.host_id)
    return [Seen(host, owner, max(0.0, float(age_s))) for host, owner, age_s in session.exec(query.order_by(HostRow.name, age))]


def quiet(session: Session) -> dict[int, float]:
    """Hosts that are held by a worker of which nothing was seen for longer than its lease has left, and for how many seconds.

    That is half of a lease, or two beats, whatever length leases were set to: one that lives has three quarters left or more.
    """
    age, left = db_now() - col(WorkerRow.seen), col(HostRow.lease_expires) - db_now()
    theirs = (col(WorkerRow.host_id) == HostRow.id) & (col(WorkerRow.owner) == HostRow.lease_owner)
    query = select(HostRow.id, age).join(WorkerRow, theirs).where(col(HostRow.lease_token).is_not(None), left >= 0, age > left)
    return {host_id or 0: float(age_s) for host_id, age_s in session.exec(query)}


def reap(session: Session, older_s: float) -> None:
    """Forget those not seen for that long."""
    session.execute(delete(WorkerRow).where(col(WorkerRow.seen) < db_now() - older_s))
