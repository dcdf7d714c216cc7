"""Idempotency keys: the same submission sent twice is queued once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import delete
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col

from service.domain.errors import Conflict, UsageError
from service.store.tables import IdempotencyRow, utc_now

ABANDONED = timedelta(seconds=60)
"""A first request that has not answered for this long has died with its process."""


def begin(session: Session, caller: str, key: str, body_hash: str) -> IdempotencyRow | None:
    """Claim a key of one caller's: two people may think of the same.

    The first answer where there is one already; None where the caller is the first.
    UsageError for another body under the same key; Conflict while the first request is still being answered.
    """
    found = session.get(IdempotencyRow, _of(caller, key))
    if found is None:
        session.add(IdempotencyRow(key=_of(caller, key), body_hash=body_hash))
        try:
            session.flush()
        except IntegrityError:
            raise _in_flight(key) from None
        return None
    if found.body_hash != body_hash:
        raise UsageError(f"the Idempotency-Key {key} was used for another request", "", "use a new key for a new request")
    if found.status is not None:
        return found
    if utc_now() - found.created_at < ABANDONED:
        raise _in_flight(key)
    found.created_at = utc_now()
    session.add(found)
    return None


def _of(caller: str, key: str) -> str:
    # No name of a caller holds a line break, so that no two pairs are one.
    return f"{caller}\n{key}"


def _in_flight(key: str) -> Conflict:
    return Conflict(f"the first request with the Idempotency-Key {key} is still being answered", "", "try again in a moment")


def answer(session: Session, caller: str, key: str, status: int, body: Any) -> None:
    """Keep the answer, in the transaction of what it tells of."""
    row = session.get_one(IdempotencyRow, _of(caller, key))
    row.status, row.answer = status, body
    session.add(row)


def forget(session: Session, caller: str, key: str) -> None:
    """The request failed and changed nothing: the key may be used again."""
    row = session.get(IdempotencyRow, _of(caller, key))
    if row is not None and row.status is None:
        session.delete(row)


def forget_older(session: Session, age: timedelta) -> None:
    """Forget answers that nobody will ask for again."""
    session.execute(delete(IdempotencyRow).where(col(IdempotencyRow.created_at) < utc_now() - age))
