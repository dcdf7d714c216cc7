"""Places that messages go to: added, changed, found by what an experiment names."""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Sequence

from sqlalchemy import delete, func, update
from sqlmodel import Session, col, select

from service.domain.errors import Conflict, NotFound, SpecError, UsageError
from service.domain.events import EventType
from service.domain.messages import SELECTABLE
from service.store import events
from service.store.tables import AttemptRow, DeliveryRow, HostRow, NotifierRow, utc_now

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
SECRET_BYTES = 32


def new_secret() -> str:
    """A signing secret as Standard Webhooks writes it."""
    return f"whsec_{base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()}"


def every(session: Session) -> list[NotifierRow]:
    """All of them by name."""
    return list(session.exec(select(NotifierRow).order_by(NotifierRow.name)))


def by_name(session: Session, name: str) -> NotifierRow:
    """The notifier of that name, or of that `kind:name`; NotFound names the known ones."""
    row = find(every(session), name)
    if row is None:
        known = ", ".join(one.name for one in every(session)) or "none yet"
        raise NotFound(f"notifier {name} is not known", f"known: {known}", "see `expctl notify list`, or add it with `expctl notify add`")
    return row


def find(known: Sequence[NotifierRow], wanted: str) -> NotifierRow | None:
    """The one that an experiment names: `infra`, or `slack:infra` where the kind is to be right as well."""
    kind, colon, name = wanted.rpartition(":")
    return next((one for one in known if one.name == name and (not colon or one.kind == kind)), None)


def check_named(session: Session, wanted: Sequence[str]) -> None:
    """SpecError where an experiment names a notifier that is not there: its message would go nowhere."""
    known = every(session)
    for one in wanted:
        if find(known, one) is None:
            names = ", ".join(f"{row.kind}:{row.name}" for row in known) or "none yet"
            todo = "name one of these, add it with `expctl notify add`, or leave it out: --set notify=[]"
            raise SpecError(f"notify: {one} is not known here", f"known: {names}", todo)


def add(
    session: Session,
    name: str,
    kind: str,
    url: str,
    actor: str,
    *,
    chosen: Sequence[str] = (),
    hosts: Sequence[str] = (),
    default: bool = False,
) -> NotifierRow:
    """Add a notifier. It is told of what happens from now on."""
    if not NAME.fullmatch(name):
        why = "letters, digits, dots, dashes and underscores are possible, 63 at most, beginning with a letter or a digit"
        raise UsageError(f"{name!r:.80} is no name for a notifier", why, "such as infra")
    if session.exec(select(NotifierRow).where(NotifierRow.name == name)).one_or_none() is not None:
        raise Conflict(f"notifier {name} is there already", "", f"choose another name, or remove it first: expctl notify remove {name}")
    row = NotifierRow(
        name=name,
        kind=kind,
        url=url,
        secret=new_secret() if kind == "webhook" else None,
        events=_events(chosen),
        hosts=_hosts(session, hosts),
        default=default,
        created_by=actor,
    )
    row.after_event = row.digest_event = events.latest(session)
    session.add(row)
    session.flush()
    events.emit(session, EventType.NOTIFIER_ADDED, actor, data={"notifier": name, "kind": kind})
    return row


def _events(chosen: Sequence[str]) -> list[str]:
    for one in chosen:
        if one not in SELECTABLE:
            raise UsageError(f"there is no message {one!r:.60}", f"there are: {', '.join(SELECTABLE)}", "give some of these to --event")
    return list(dict.fromkeys(chosen))


def _hosts(session: Session, names: Sequence[str]) -> list[str]:
    known = list(session.exec(select(HostRow.name).order_by(HostRow.name)))
    for one in names:
        if one not in known:
            raise UsageError(f"host {one!r:.80} is not known", f"known: {', '.join(known) or 'none yet'}", "give some of these to --host")
    return list(dict.fromkeys(names))


def remove(session: Session, name: str, actor: str) -> NotifierRow:
    """Forget a notifier with its deliveries; what was pending is never sent."""
    row = by_name(session, name)
    mine = select(DeliveryRow.id).where(DeliveryRow.notifier_id == row.id)
    pending = session.exec(
        select(func.count()).select_from(DeliveryRow).where(DeliveryRow.notifier_id == row.id, DeliveryRow.status == "pending")
    ).one()
    session.execute(delete(AttemptRow).where(col(AttemptRow.delivery_id).in_(mine)).execution_options(synchronize_session=False))
    session.execute(delete(DeliveryRow).where(col(DeliveryRow.notifier_id) == row.id).execution_options(synchronize_session=False))
    session.delete(row)
    events.emit(session, EventType.NOTIFIER_REMOVED, actor, data={"notifier": row.name, "pending": pending})
    return row


def enable(session: Session, name: str, actor: str) -> NotifierRow:
    """Tell it again of what happens from now on. What was dead stays so until it is replayed."""
    row = by_name(session, name)
    if row.disabled_at is not None:
        row.disabled_at = row.disabled_because = row.quiet_until = None
        row.after_event = row.digest_event = events.latest(session)
        session.add(row)
        events.emit(session, EventType.NOTIFIER_CHANGED, actor, data={"notifier": row.name, "enabled": True})
    return row


def disable(session: Session, row: NotifierRow, because: str, actor: str) -> int:
    """Tell it nothing more, and end what is pending; gives how many messages that ended."""
    row.disabled_at, row.disabled_because = utc_now(), because
    session.add(row)
    ended = session.execute(
        update(DeliveryRow)
        .where(col(DeliveryRow.notifier_id) == row.id, col(DeliveryRow.status) == "pending")
        .values(status="dead", ended_because=f"notifier {row.name} was disabled: {because}", claim=None, claimed_until=None)
        .returning(col(DeliveryRow.id))
        .execution_options(synchronize_session=False)
    ).all()
    data = {"notifier": row.name, "why": because, "ended": len(ended)}
    events.emit(session, EventType.NOTIFIER_DISABLED, actor, data=data)
    return len(ended)


def rotate(session: Session, name: str, actor: str, *, finish: bool = False) -> NotifierRow:
    """Make a new signing secret, and sign with both; `finish`: with the new one alone."""
    row = by_name(session, name)
    if row.kind != "webhook":
        raise Conflict(f"{name} has no signing secret", "Slack's address is its own secret", "make a new address in Slack and add it")
    if finish != (row.old_secret is not None):
        if finish:
            raise Conflict(f"no rotation of {name} is under way", "it signs with one secret", f"begin one: expctl notify rotate {name}")
        todo = f"end it once the receiver knows the new one: expctl notify rotate {name} --finish"
        raise Conflict(f"a rotation of {name} is under way", "it signs with the old and the new secret", todo)
    row.old_secret, row.secret = (None, row.secret) if finish else (row.secret, new_secret())
    session.add(row)
    data = {"notifier": row.name, "rotation": "finished" if finish else "begun"}
    events.emit(session, EventType.NOTIFIER_CHANGED, actor, data=data)
    return row


def told(known: Sequence[NotifierRow], hosts: Sequence[str], named: Sequence[str] = ()) -> tuple[list[NotifierRow], list[str]]:
    """Who is told of something, and which names lead nowhere.

    Whoever is named; where nobody is, whoever cares for the host; where nobody does, the default ones. A name that leads
    nowhere brings the default ones in, so that the message is not lost.
    """
    enabled = [one for one in known if one.disabled_at is None]
    by_name = {wanted: find(enabled, wanted) for wanted in named}
    lost = [wanted for wanted, one in by_name.items() if one is None]
    chosen = [one for one in by_name.values() if one is not None]
    if not named:
        chosen = [one for one in enabled if set(one.hosts) & set(hosts)]
    if not chosen or lost:
        chosen += [one for one in enabled if one.default and not one.hosts]
    return list({one.id: one for one in chosen}.values()), lost
