"""Tokens: made, found by their hash, revoked. What is kept of one cannot be used to sign in."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import or_, update
from sqlmodel import Session, col, select

from service.domain.access import Access, Scope
from service.domain.errors import Conflict, NotFound, NotSignedIn
from service.domain.events import EventType
from service.domain.tokentext import digest, make, shown
from service.store import events
from service.store.tables import TokenRow, utc_now

USE_EVERY = timedelta(minutes=1)
"""How exactly it is known when a token was last used. Any finer, and each reading would be a write."""
TODO = "an admin makes a new one: expctl token create NAME"


def create(
    session: Session, name: str, owner: str, scopes: Sequence[Scope], actor: str, expires_in: timedelta | None = None
) -> tuple[TokenRow, str]:
    """A new token: its row, and its text, which is nowhere to be found afterwards. Conflict where a living one has that name."""
    if any(row.name == name for row in listing(session)):
        raise Conflict(f"there is a token named {name} already", "", f"choose another name, or revoke it: expctl token revoke {name}")
    token = make()
    row = TokenRow(
        name=name,
        owner=owner,
        prefix=shown(token),
        token_hash=digest(token),
        scopes=[scope.value for scope in Scope if scope in scopes],
        created_by=actor,
        expires_at=utc_now() + expires_in if expires_in is not None else None,
    )
    session.add(row)
    session.flush()
    expires = row.expires_at.isoformat() if row.expires_at else None
    data = {"id": row.id, "name": name, "owner": owner, "scopes": row.scopes, "expires_at": expires}
    events.emit(session, EventType.TOKEN_CREATED, actor, data=data)
    return row, token


def sign_in(session: Session, token_hash: str) -> tuple[Access, datetime | None]:
    """What the holder of a token may do, and when it was last used. NotSignedIn where it is not known, revoked or expired."""
    return _access(session.exec(select(TokenRow).where(TokenRow.token_hash == token_hash)).one_or_none())


def still(session: Session, token_id: int) -> datetime | None:
    """When a token that was good a while ago was last used. NotSignedIn where it is no longer."""
    return _access(session.get(TokenRow, token_id))[1]


def _access(row: TokenRow | None) -> tuple[Access, datetime | None]:
    if row is None:
        raise NotSignedIn("the token is not known", "this service has never made it, or not with this database", TODO)
    if row.revoked_at is not None:
        raise NotSignedIn(f"the token {row.name} is revoked", f"since {row.revoked_at:%Y-%m-%d %H:%M} UTC", TODO)
    if row.expires_at is not None and row.expires_at <= utc_now():
        raise NotSignedIn(f"the token {row.name} has expired", f"on {row.expires_at:%Y-%m-%d %H:%M} UTC", TODO)
    return Access(row.owner, frozenset(Scope(one) for one in row.scopes), row.id, row.name), row.used_at


def due_to_note(used_at: datetime | None) -> bool:
    """Whether a use of a token is worth a write."""
    return used_at is None or utc_now() - used_at >= USE_EVERY


def note_use(session: Session, token_id: int) -> None:
    """Remember that a token was used just now."""
    long_ago = or_(col(TokenRow.used_at).is_(None), col(TokenRow.used_at) <= utc_now() - USE_EVERY)
    session.execute(
        update(TokenRow)
        .where(col(TokenRow.id) == token_id, long_ago)
        .values(used_at=utc_now())
        .execution_options(synchronize_session=False)
    )


def listing(session: Session, owner: str | None = None, *, ended: bool = False) -> list[TokenRow]:
    """Tokens by their age; those that were revoked or have expired only where asked for."""
    query = select(TokenRow).order_by(col(TokenRow.id))
    if owner is not None:
        query = query.where(TokenRow.owner == owner)
    if not ended:
        living = or_(col(TokenRow.expires_at).is_(None), col(TokenRow.expires_at) > utc_now())
        query = query.where(col(TokenRow.revoked_at).is_(None), living)
    return list(session.exec(query))


def get(session: Session, token_id: int) -> TokenRow:
    """One token, or NotFound."""
    row = session.get(TokenRow, token_id)
    if row is None:
        raise NotFound(f"there is no token {token_id}", "", "see `expctl token list`")
    return row


def revoke(session: Session, token_id: int, actor: str) -> TokenRow:
    """End a token; the next request with it is refused. To revoke it twice changes nothing."""
    row = get(session, token_id)
    if row.revoked_at is None:
        row.revoked_at = utc_now()
        session.add(row)
        session.flush()
        events.emit(session, EventType.TOKEN_REVOKED, actor, data={"id": row.id, "name": row.name, "owner": row.owner})
    return row
