"""Tokens made, listed and revoked on the database itself: how the first one comes to be, and the way in when none is left.

Whoever can write the database is its master anyway, so this asks for no token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlmodel import Session

from expctl.datafolder import settings_of
from expctl.serve import open_database
from expctl.tokenclient import number_of
from service.domain.access import Scope, check_owner
from service.settings import current_user
from service.store import tokens
from service.store.tables import TokenRow

Json = dict[str, Any]
SHOWN = ("id", "name", "owner", "prefix", "scopes", "created_by", "created_at", "expires_at", "used_at", "revoked_at")


class LocalTokens:
    """The database that EXPCTL_DATABASE_URL or the data folder names."""

    def __init__(self, data: Path | None) -> None:
        self._settings = settings_of(data)

    @contextmanager
    def _session(self, *, write: bool) -> Iterator[Session]:
        database = open_database(self._settings)
        try:
            with database.write() if write else database.read() as session:
                yield session
        finally:
            database.close()

    def tokens(self, *, ended: bool) -> list[Json]:
        """Everybody's."""
        with self._session(write=False) as session:
            return [_shown(row) for row in tokens.listing(session, ended=ended)]

    def create(self, name: str, owner: str | None, scopes: Sequence[Scope], expires_in: timedelta | None) -> Json:
        """A new token, with its text."""
        user = current_user()
        with self._session(write=True) as session:
            row, token = tokens.create(session, name, check_owner(owner or user), scopes, user, expires_in)
            return _shown(row) | {"token": token}

    def revoke(self, which: str) -> Json:
        """End a token, named by its name or its id."""
        number = number_of(which, self.tokens(ended=False))
        with self._session(write=True) as session:
            return _shown(tokens.revoke(session, number, current_user()))


def _shown(row: TokenRow) -> Json:
    values = {name: getattr(row, name) for name in SHOWN}
    return {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in values.items()}
