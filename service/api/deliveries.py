"""/v1/deliveries: what became of each message, try by try, and sending one again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel
from sqlmodel import Session

from service.api.auth import ADMIN, READ
from service.api.deps import ReadSession, User, WriteSession
from service.domain.messages import Message
from service.store import notifiers, outbox
from service.store.tables import AttemptRow, DeliveryRow, NotifierRow

router = APIRouter(prefix="/v1/deliveries", tags=["messages"])

Id = Annotated[int, Path(ge=1, le=2**31 - 1)]
BeforeId = Annotated[int | None, Query(ge=1, le=2**31 - 1)]
DeliveryStatus = Literal["pending", "delivered", "dead"]


class AttemptOut(BaseModel):
    """One try."""

    at: datetime
    http_status: int | None
    error: str | None
    answer: str
    seconds: float


class DeliveryOut(BaseModel):
    """One message to one notifier."""

    id: int
    notifier: str
    type: str
    headline: str
    experiment_id: int | None
    event_id: int | None
    message_id: str
    status: DeliveryStatus
    ended_because: str | None
    attempts: int
    """Tries that failed, since it was made or replayed."""
    next_try: datetime | None
    created_at: datetime
    delivered_at: datetime | None


class DeliveryDetail(DeliveryOut):
    """The same with the message itself, and every try."""

    message: Message
    tries: list[AttemptOut]


class DeliveryPage(BaseModel):
    """A page of deliveries, newest first; `next` is the address of the following page."""

    items: list[DeliveryOut]
    next: str | None


def delivery_out(row: DeliveryRow, notifier: NotifierRow) -> DeliveryOut:
    """A delivery's row as shown."""
    same = {name: getattr(row, name) for name in DeliveryOut.model_fields if hasattr(row, name)}
    following = datetime.fromtimestamp(row.next_try, UTC) if row.status == "pending" and row.next_try else None
    return DeliveryOut(**same | {"notifier": notifier.name, "headline": row.body.get("headline", ""), "next_try": following})


def _detail(session: Session, row: DeliveryRow) -> DeliveryDetail:
    out = delivery_out(row, session.get_one(NotifierRow, row.notifier_id))
    return DeliveryDetail(
        **out.model_dump(),
        message=Message.model_validate(row.body),
        tries=[_attempt(one) for one in outbox.attempts(session, row.id or 0)],
    )


def _attempt(row: AttemptRow) -> AttemptOut:
    return AttemptOut.model_validate(row, from_attributes=True)


@router.get("", dependencies=[READ])
def listing(
    session: ReadSession,
    status: Annotated[DeliveryStatus | None, Query()] = None,
    notifier: Annotated[str | None, Query(max_length=200)] = None,
    experiment: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    before: BeforeId = None,
) -> DeliveryPage:
    """Deliveries, newest first."""
    rows = outbox.listing(session, status=status, notifier=notifier, experiment_id=experiment, limit=limit + 1, before=before)
    names = {row.id or 0: row for row in notifiers.every(session)}
    following = None
    if len(rows) > limit:
        asked = {"status": status, "notifier": notifier, "experiment": experiment, "limit": limit, "before": rows[limit - 1].id}
        following = f"/v1/deliveries?{urlencode({key: value for key, value in asked.items() if value is not None})}"
    return DeliveryPage(items=[delivery_out(row, names[row.notifier_id]) for row in rows[:limit]], next=following)


@router.get("/{delivery_id}", dependencies=[READ])
def one(session: ReadSession, delivery_id: Id) -> DeliveryDetail:
    """One delivery with its message and every try."""
    return _detail(session, outbox.get(session, delivery_id))


@router.post("/{delivery_id}/replay", dependencies=[ADMIN])
def replay(session: WriteSession, user: User, delivery_id: Id) -> DeliveryDetail:
    """Send a dead or delivered message again, under the same message id."""
    return _detail(session, outbox.replay(session, delivery_id, user))
