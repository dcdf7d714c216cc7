"""/v1/tokens: make, list, revoke. A token's text is shown once, in the answer that makes it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from service.api.auth import ADMIN, READ, Caller
from service.api.deps import ReadSession, WriteSession
from service.domain.access import LONGEST_NAME, Scope, check_owner
from service.domain.spec_base import NAME
from service.store import tokens
from service.store.tables import TokenRow

router = APIRouter(prefix="/v1/tokens", tags=["access"], dependencies=[READ])

CREATED = 201
LONGEST_S = 10 * 365 * 86400

Id = Annotated[int, Path(ge=1, le=2**31 - 1)]


class TokenWanted(BaseModel):
    """A token to make."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(max_length=LONGEST_NAME, pattern=NAME)]
    """What it is for: a laptop, a CI job. No two living tokens share a name."""
    owner: Annotated[str, Field(max_length=LONGEST_NAME)] | None = None
    """Whom it speaks for; default: whoever makes it."""
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=len(Scope))]
    expires_in_s: Annotated[float, Field(gt=0, le=LONGEST_S)] | None = None
    """Seconds from now; null: it does not expire."""


class TokenOut(BaseModel):
    """A token, without what it is used with."""

    id: int
    name: str
    owner: str
    prefix: str
    """Its first letters."""
    scopes: list[Scope]
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    used_at: datetime | None
    """To the minute."""
    revoked_at: datetime | None


class TokenMade(TokenOut):
    """A new token, with its text: nobody can be told it a second time."""

    token: str


@router.get("")
def listing(
    session: ReadSession,
    access: Caller,
    ended: Annotated[bool, Query(description="also those that were revoked or have expired")] = False,
) -> list[TokenOut]:
    """Tokens by their age: everybody's for an admin, else one's own."""
    owner = None if access.may(Scope.ADMIN) else access.name
    return [token_out(row) for row in tokens.listing(session, owner, ended=ended)]


@router.post("", status_code=CREATED, dependencies=[ADMIN])
def create(session: WriteSession, access: Caller, body: TokenWanted) -> TokenMade:
    """Make a token. Keep its text: only a hash of it stays here."""
    expires_in = timedelta(seconds=body.expires_in_s) if body.expires_in_s is not None else None
    owner = check_owner(body.owner or access.name)
    row, token = tokens.create(session, body.name, owner, body.scopes, access.name, expires_in)
    return TokenMade(**token_out(row).model_dump(), token=token)


@router.delete("/{token_id}")
def revoke(session: WriteSession, access: Caller, token_id: Id) -> TokenOut:
    """End a token at once: one's own, or as an admin any."""
    row = tokens.get(session, token_id)
    access.require_own(row.owner, f"token {token_id}")
    return token_out(tokens.revoke(session, token_id, access.name))


def token_out(row: TokenRow) -> TokenOut:
    """A token's row as shown."""
    return TokenOut.model_validate(row, from_attributes=True)
