"""Who may do what."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import UniqueConstraint
from sqlmodel import Field, SQLModel

from service.store.columns import json_column, time_column, utc_now


class TokenRow(SQLModel, table=True):
    """A bearer token, as a hash: whoever reads the database cannot use it."""

    __tablename__ = "tokens"
    __table_args__ = (UniqueConstraint("token_hash"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True)
    name: str
    """What it is for, e.g. a laptop or a CI job."""
    owner: str
    """Whom it speaks for: the actor of the events it causes."""
    prefix: str
    """The first letters of the token, to tell it from others."""
    token_hash: str
    """SHA-256, hexadecimal. The token is 256 random bits, so nothing is gained by a slow hash."""
    scopes: list[str] = Field(default_factory=list, sa_column=json_column())
    created_by: str
    created_at: datetime = Field(default_factory=utc_now, sa_column=time_column(nullable=False))
    expires_at: datetime | None = Field(default=None, sa_column=time_column())
    used_at: datetime | None = Field(default=None, sa_column=time_column())
    revoked_at: datetime | None = Field(default=None, sa_column=time_column())
