"""A stream that stays open for hours: counted while it is, and ended soon after its token is."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from service.api.auth import Caller
from service.api.deps import database
from service.api.signin import note_use
from service.domain.access import Access
from service.domain.errors import NotSignedIn
from service.store import tokens
from service.store.database import Database

LOOK_EVERY_S = 15.0


class Standing:
    """Whether somebody who opened a stream may still have it."""

    def __init__(self, store: Database, access: Access) -> None:
        self._store, self._access = store, access
        self._looked = time.monotonic()

    async def lasts(self) -> bool:
        """False once the token is revoked or has expired."""
        if self._access.token_id is None or time.monotonic() - self._looked < LOOK_EVERY_S:
            return True
        self._looked = time.monotonic()
        return await run_in_threadpool(self._look, self._access.token_id)

    def _look(self, token_id: int) -> bool:
        try:
            with self._store.read() as session:
                used_at = tokens.still(session, token_id)
        except NotSignedIn:
            return False
        if tokens.due_to_note(used_at):
            note_use(self._store, token_id)
        return True


async def standing(request: Request, access: Caller) -> AsyncIterator[Standing]:
    """Counts a stream from its beginning to its end; Throttled where the token has too many."""
    with request.app.state.streams.one(f"token {access.token_id}"):
        yield Standing(database(request), access)
