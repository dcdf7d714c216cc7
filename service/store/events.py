"""Events: written in the transaction of the change they tell of, read by everybody."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func
from sqlmodel import Session, col, select

from service.domain.events import Event, EventType
from service.store.tables import EventRow


def emit(
    session: Session,
    event_type: EventType,
    actor: str,
    *,
    host: str | None = None,
    experiment_id: int | None = None,
    data: dict[str, Any] | None = None,
) -> None:
    """Write one event with whatever the session commits."""
    session.add(EventRow(type=event_type, actor=actor, host=host, experiment_id=experiment_id, data=data or {}))


def since(session: Session, after: int = 0, *, experiment_id: int | None = None, limit: int = 500) -> list[Event]:
    """Events with an id above `after`, oldest first.

    Whoever goes on after the last id it saw misses none: writers are alone, so ids grow in the order of the commits.
    """
    query = select(EventRow).where(col(EventRow.id) > after).order_by(col(EventRow.id)).limit(limit)
    if experiment_id is not None:
        query = query.where(EventRow.experiment_id == experiment_id)
    return [
        Event(
            id=row.id or 0,
            at=row.at,
            type=EventType(row.type),
            actor=row.actor,
            host=row.host,
            experiment_id=row.experiment_id,
            data=row.data,
        )
        for row in session.exec(query)
    ]


def latest(session: Session) -> int:
    """The id of the newest event; 0 before the first."""
    return session.exec(select(func.max(EventRow.id))).one() or 0
