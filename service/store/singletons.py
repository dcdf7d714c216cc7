"""Leases on what must have one holder at a time: claim, heartbeat, release, and the guard of its writes."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import or_, update
from sqlmodel import Session, col, select

from service.domain.errors import ClaimLost
from service.store.database import db_now
from service.store.tables import SingletonRow


@dataclass(frozen=True)
class Hold:
    """The right to be the one, until it expires or somebody claims it anew."""

    name: str
    owner: str
    token: str
    fence: int


class Holder(NamedTuple):
    """Who is the one, and for how many seconds the lease holds if it is not renewed; below 0 it has run out."""

    owner: str
    lease_left_s: float


def holder(session: Session, name: str) -> Holder | None:
    """Who is the one; None where it was handed back, or nobody ever was."""
    left = (col(SingletonRow.expires) - db_now()).label("left")
    query = select(SingletonRow.owner, left).where(SingletonRow.name == name, col(SingletonRow.token).is_not(None))
    found = session.exec(query).one_or_none()
    return None if found is None else Holder(str(found[0]), float(found[1] or 0.0))


def claim(session: Session, name: str, owner: str, lease_s: float) -> Hold | None:
    """Be the one, if nobody is; the fence grows with every claim."""
    if session.get(SingletonRow, name) is None:
        session.add(SingletonRow(name=name))
        session.flush()
    token = secrets.token_hex(16)
    free = or_(col(SingletonRow.token).is_(None), col(SingletonRow.expires) < db_now())
    statement = (
        update(SingletonRow)
        .where(col(SingletonRow.name) == name, free)
        .values(owner=owner, token=token, expires=db_now() + lease_s, fence=SingletonRow.fence + 1)
        .returning(col(SingletonRow.fence))
        .execution_options(synchronize_session=False)
    )
    fence = session.execute(statement).scalar_one_or_none()
    return None if fence is None else Hold(name, owner, token, fence)


def heartbeat(session: Session, hold: Hold, lease_s: float) -> None:
    """Stay the one. ClaimLost if somebody else is; what has expired and was not taken is still ours."""
    statement = (
        update(SingletonRow)
        .where(col(SingletonRow.name) == hold.name, col(SingletonRow.token) == hold.token)
        .values(expires=db_now() + lease_s)
        .returning(col(SingletonRow.name))
        .execution_options(synchronize_session=False)
    )
    if session.execute(statement).one_or_none() is None:
        raise _lost(hold)


def guard(session: Session, hold: Hold) -> None:
    """Every write of a holder passes here: ClaimLost unless it is the one at this moment."""
    mine = select(SingletonRow.name).where(SingletonRow.name == hold.name, SingletonRow.token == hold.token)
    if session.exec(mine.where(col(SingletonRow.expires) >= db_now()).with_for_update()).one_or_none() is None:
        raise _lost(hold)


def release(session: Session, hold: Hold) -> None:
    """Let somebody else be the one, if it is still us."""
    session.execute(
        update(SingletonRow)
        .where(col(SingletonRow.name) == hold.name, col(SingletonRow.token) == hold.token)
        .values(owner=None, token=None, expires=None)
        .execution_options(synchronize_session=False)
    )


def _lost(hold: Hold) -> ClaimLost:
    return ClaimLost(f"{hold.owner} is no longer the {hold.name}")
