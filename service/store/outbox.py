"""Messages on their way: made once in the transaction that reads the events, claimed, tried, ended, replayed.

A delivery is sent at least once. Its message id stays the same however often it is sent, so that a receiver can tell a second try
from a second message. Whoever claims one has it until `claimed_until`; after that somebody else may send it.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, func, or_, update
from sqlalchemy.orm import aliased
from sqlmodel import Session, col, select

from service.domain import backoff
from service.domain.errors import Conflict, NotFound
from service.domain.events import Event, EventType
from service.domain.messages import Message, MessageType
from service.store import events, notifiers
from service.store.database import db_now
from service.store.tables import AttemptRow, DeliveryRow, EventRow, MarkRow, NotifierRow, utc_now

MARK = "messages"
ACTOR = "steward"
CLAIM_S = 60.0
"""How long a sender keeps what it claimed; well over the time that one request may take."""
ANSWER_LENGTH = 500
_GONE = 410

_Earlier = aliased(DeliveryRow)


@dataclass(frozen=True)
class Claimed:
    """A delivery that this sender may send, and where to."""

    id: int
    claim: str
    notifier_id: int
    kind: str
    url: str
    secrets: tuple[str, ...]
    """What it is signed with, the new secret first."""
    message_id: str
    body: dict[str, Any]
    experiment_id: int | None
    perhaps_sent: bool = False
    """Nobody knows whether an earlier try arrived: its sender was lost before it could say so, or the receiver did not answer."""


@dataclass(frozen=True)
class Attempted:
    """How one try ended."""

    http_status: int | None = None
    error: str | None = None
    """None: it arrived."""
    answer: str = ""
    seconds: float = 0.0
    pause_s: float | None = None
    """The receiver asked for so long a pause."""
    unsure: bool = False
    """It failed, and may have arrived all the same."""


def now(session: Session) -> float:
    """The database's clock, seconds since 1970."""
    return float(session.execute(select(db_now())).scalar_one())


# The mark.


def mark(session: Session) -> tuple[int, dict[str, Any]]:
    """The last event whose messages are made, and what is remembered for those to come."""
    row = session.get(MarkRow, MARK)
    return (0, {}) if row is None else (row.event_id, dict(row.state or {}))


def move_mark(session: Session, seen: int, to: int, state: dict[str, Any]) -> bool:
    """Move the mark from where it was seen; False where somebody else has moved it, and has made the messages."""
    row = session.get(MarkRow, MARK)
    if (0 if row is None else row.event_id) != seen:
        return False
    row = row or MarkRow(name=MARK)
    row.event_id, row.state = to, state
    session.add(row)
    return True


def interesting(session: Session, types: Sequence[EventType], after: int, limit: int) -> tuple[list[Event], int]:
    """The next events of these types, oldest first, and up to which event there are no others of them."""
    query = select(EventRow).where(col(EventRow.id) > after, col(EventRow.type).in_(types)).order_by(col(EventRow.id)).limit(limit)
    found = [Event.model_validate(row, from_attributes=True) for row in session.exec(query)]
    return found, found[-1].id if len(found) == limit else max(after, events.latest(session))


# Making.


def put(
    session: Session,
    notifier: NotifierRow,
    key: str,
    line: str,
    message: Message,
    *,
    event_id: int | None = None,
    experiment_id: int | None = None,
    due: float = 0.0,
) -> DeliveryRow | None:
    """Make one delivery; None where this notifier was told the same already."""
    known = select(DeliveryRow.id).where(DeliveryRow.notifier_id == notifier.id, DeliveryRow.key == key)
    if session.exec(known).first() is not None:
        return None
    row = DeliveryRow(
        notifier_id=notifier.id or 0,
        key=key,
        event_id=event_id,
        experiment_id=experiment_id,
        line=line,
        type=message.type,
        message_id=f"msg_{secrets.token_hex(12)}",
        body=message.model_dump(mode="json"),
        next_try=due,
    )
    session.add(row)
    session.flush()
    return row


# Sending.


def _ready(at: float) -> list[ColumnElement[bool]]:
    """Due, claimed by nobody, first of its line, and its notifier takes messages."""
    earlier = (
        select(_Earlier.id)
        .where(_Earlier.notifier_id == DeliveryRow.notifier_id, _Earlier.line == DeliveryRow.line)
        .where(_Earlier.status == "pending", col(_Earlier.id) < col(DeliveryRow.id))
        .correlate(DeliveryRow)
        .exists()
    )
    return [
        col(DeliveryRow.status) == "pending",
        col(DeliveryRow.next_try) <= at,
        or_(col(DeliveryRow.claimed_until).is_(None), col(DeliveryRow.claimed_until) < at),
        ~earlier,
        col(NotifierRow.disabled_at).is_(None),
        or_(col(NotifierRow.quiet_until).is_(None), col(NotifierRow.quiet_until) <= at),
    ]


def due(session: Session, at: float, full: Collection[int] = ()) -> list[int]:
    """Ids of the notifiers that something can be claimed for, besides those in `full`."""
    query = select(DeliveryRow.notifier_id).join(NotifierRow, col(NotifierRow.id) == DeliveryRow.notifier_id)
    query = query.where(*_ready(at), col(DeliveryRow.notifier_id).not_in(full)).distinct()
    return sorted(session.exec(query))


def claim(session: Session, at: float, room: Mapping[int, int], each: int, but: Collection[int] = ()) -> list[Claimed]:
    """Take what is due, oldest first: at most `each` per notifier, or what `room` says is left of that; none of `but`.

    Each notifier is asked for by itself, so that one with thousands of messages keeps nobody else's waiting.
    """
    taken: list[Claimed] = []
    for notifier_id in due(session, at, [one for one, places in room.items() if places <= 0]):
        query = select(DeliveryRow, NotifierRow).join(NotifierRow, col(NotifierRow.id) == DeliveryRow.notifier_id)
        query = query.where(DeliveryRow.notifier_id == notifier_id, col(DeliveryRow.id).not_in(but), *_ready(at)).order_by(
            col(DeliveryRow.id)
        )
        for row, notifier in session.exec(query.limit(room.get(notifier_id, each))).all():
            # A claim that is still there is of a try that nobody knows the end of.
            perhaps_sent, claim = row.claim is not None, secrets.token_hex(8)
            row.claim, row.claimed_until = claim, at + CLAIM_S
            session.add(row)
            taken.append(_claimed(row, notifier, claim, perhaps_sent=perhaps_sent))
    session.flush()
    return taken


def _claimed(row: DeliveryRow, notifier: NotifierRow, claim: str, *, perhaps_sent: bool) -> Claimed:
    keys = tuple(one for one in (notifier.secret, notifier.old_secret) if one)
    return Claimed(
        row.id or 0, claim, row.notifier_id, notifier.kind, notifier.url, keys, row.message_id, row.body, row.experiment_id, perhaps_sent
    )


def record(session: Session, claimed: Claimed, result: Attempted, at: float) -> None:
    """Write down how a try ended, and what follows from it.

    What has arrived is delivered, whoever sent it. A failure counts only where nobody else has taken the delivery over.
    """
    row = session.get(DeliveryRow, claimed.id)
    if row is None:
        return  # its notifier was removed meanwhile
    session.add(
        AttemptRow(
            delivery_id=claimed.id,
            http_status=result.http_status,
            error=result.error,
            answer=result.answer[:ANSWER_LENGTH],
            seconds=round(result.seconds, 3),
        )
    )
    notifier = session.get_one(NotifierRow, row.notifier_id)
    if result.error is None:
        _arrived(session, row, notifier, at)
    elif row.status == "pending" and row.claim == claimed.claim:
        _failed(session, row, notifier, result, at)


def _arrived(session: Session, row: DeliveryRow, notifier: NotifierRow, at: float) -> None:
    if row.status == "delivered":
        return
    row.status, row.delivered_at, row.ended_because, row.claim, row.claimed_until = "delivered", utc_now(), None, None, None
    session.add(row)
    # The receiver is there again, so what waits for it need not wait for its own next try.
    session.execute(
        update(DeliveryRow)
        .where(col(DeliveryRow.notifier_id) == notifier.id, col(DeliveryRow.status) == "pending", col(DeliveryRow.next_try) > at)
        .values(next_try=at)
        .execution_options(synchronize_session=False)
    )


def _failed(session: Session, row: DeliveryRow, notifier: NotifierRow, result: Attempted, at: float) -> None:
    row.attempts += 1
    row.claim, row.claimed_until = row.claim if result.unsure else None, None
    session.add(row)
    if result.pause_s is not None:
        notifier.quiet_until = at + result.pause_s
        session.add(notifier)
    delay = None if row.type == MessageType.TEST else backoff.delay_s(row.attempts, result.pause_s)
    if result.http_status == _GONE:
        _die(session, row, notifier, f"the receiver answered {_GONE}: it wants no more messages")
        session.flush()
        notifiers.disable(session, notifier, f"the receiver answered {_GONE} (gone)", ACTOR)
    elif delay is None:
        _die(session, row, notifier, f"given up after {row.attempts} tries, the last: {result.error}")
    else:
        row.next_try = at + delay


def _die(session: Session, row: DeliveryRow, notifier: NotifierRow, because: str) -> None:
    row.status, row.ended_because = "dead", because
    if row.type == MessageType.TEST:
        return  # whoever sent it sees how it ended
    data = {"delivery": row.id, "notifier": notifier.name, "type": row.type, "why": because}
    events.emit(session, EventType.DELIVERY_FAILED, ACTOR, experiment_id=row.experiment_id, data=data)


# Looking, and sending again.


def get(session: Session, delivery_id: int) -> DeliveryRow:
    """One delivery, or NotFound."""
    row = session.get(DeliveryRow, delivery_id)
    if row is None:
        raise NotFound(f"delivery {delivery_id} does not exist", "there is no delivery of that id", "see `expctl notify deliveries`")
    return row


def listing(
    session: Session,
    *,
    status: str | None = None,
    notifier: str | None = None,
    experiment_id: int | None = None,
    limit: int = 50,
    before: int | None = None,
) -> list[DeliveryRow]:
    """Newest first; `before` is the id to go on from."""
    query = select(DeliveryRow).order_by(col(DeliveryRow.id).desc()).limit(limit)
    if status is not None:
        query = query.where(DeliveryRow.status == status)
    if notifier is not None:
        query = query.where(DeliveryRow.notifier_id == notifiers.by_name(session, notifier).id)
    if experiment_id is not None:
        query = query.where(DeliveryRow.experiment_id == experiment_id)
    if before is not None:
        query = query.where(col(DeliveryRow.id) < before)
    return list(session.exec(query))


def attempts(session: Session, delivery_id: int) -> list[AttemptRow]:
    """Every try of a delivery, oldest first."""
    return list(session.exec(select(AttemptRow).where(AttemptRow.delivery_id == delivery_id).order_by(col(AttemptRow.id))))


def counts(session: Session) -> dict[int, dict[str, int]]:
    """Notifier's id to how many deliveries it has in each status."""
    query = select(DeliveryRow.notifier_id, DeliveryRow.status, func.count()).group_by(
        col(DeliveryRow.notifier_id), col(DeliveryRow.status)
    )
    found: dict[int, dict[str, int]] = {}
    for notifier_id, status, count in session.exec(query):
        found.setdefault(notifier_id, {})[status] = count
    return found


def replay(session: Session, delivery_id: int, actor: str) -> DeliveryRow:
    """Send a dead or delivered one again: the same message under the same id. Conflict where it is on its way."""
    row = get(session, delivery_id)
    notifier = session.get_one(NotifierRow, row.notifier_id)
    if row.status == "pending":
        raise Conflict(f"delivery {delivery_id} is on its way", f"tried {row.attempts} times so far", "wait until it is delivered or dead")
    if notifier.disabled_at is not None:
        todo = f"enable it first: expctl notify enable {notifier.name}"
        raise Conflict(f"notifier {notifier.name} is disabled", notifier.disabled_because or "", todo)
    row.status, row.attempts, row.next_try, row.delivered_at, row.ended_because, row.claim = "pending", 0, 0.0, None, None, None
    session.add(row)
    data = {"delivery": row.id, "notifier": notifier.name, "type": row.type}
    events.emit(session, EventType.DELIVERY_REPLAYED, actor, experiment_id=row.experiment_id, data=data)
    return row
