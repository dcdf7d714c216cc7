"""Signing in: whose token a request brings, as a bearer or in a browser's cookie, and how often they may come.

It stands before everything else, so that a request without a token is refused before its body is read.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from datetime import datetime
from functools import partial

import structlog
from anyio import to_thread
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.origin import same_site
from service.api.problems import refusal_of
from service.api.ratelimit import Buckets, throttled
from service.domain.access import Access
from service.domain.errors import ExpctlError, Forbidden, NotSignedIn, Unavailable
from service.domain.tokentext import digest, well_formed
from service.store import tokens
from service.store.database import Database

log = structlog.get_logger()

READING = frozenset({"GET", "HEAD", "OPTIONS"})
UNTOUCHED = ("/healthz", "/static/")
"""Answers whatever becomes of the database, and the same to everybody."""
COOKIE = "expctl_token"
"""Where a browser keeps the token that somebody signed in with: of this site alone, and out of reach of scripts."""
CLOSED = "/v1/"
"""Nothing under it is answered without a token, whatever its route says."""
FAILURES_PER_MINUTE, FAILURES_AT_ONCE = 10.0, 10
LOOK_S = 6.0
"""How long a database may take to say whose a token is: a little longer than a connection to it."""
REMEMBERED = 1000
TODO = "set EXPCTL_TOKEN, or write the token into ~/.config/expctl/token (mode 600); an admin makes one: expctl token create NAME"


class Authentication:
    """Finds out who asks. The app finds it in `request.state`: `access`, or on paths that are open to everybody `refusal`."""

    def __init__(self, app: ASGIApp, store: Database, writes_per_minute: float, base_url: str = "") -> None:
        self.app = app
        self._store = store
        self._base_url = base_url
        self._writes = Buckets(writes_per_minute, max(1, int(writes_per_minute / 4)))
        self._failures = Buckets(FAILURES_PER_MINUTE, FAILURES_AT_ONCE)
        self._told = Buckets(FAILURES_PER_MINUTE, FAILURES_AT_ONCE)
        self._good: OrderedDict[str, None] = OrderedDict()
        """Hashes that were good lately: their owners are not kept waiting by a stranger who tries tokens from the same address."""
        self._noting: set[int] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on with who it is, or refuse."""
        if scope["type"] != "http" or scope["path"].startswith(UNTOUCHED):
            await self.app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        used_now: int | None = None
        try:
            access, used_at = await self._sign_in(scope)
            self._count(scope, access)
            state["access"] = access
            used_now = access.token_id if tokens.due_to_note(used_at) else None
        except ExpctlError as error:
            if scope["path"].startswith(CLOSED):
                await refusal_of(error)(scope, receive, send)
                return
            state["refusal"] = error
        await self.app(scope, receive, send)
        if used_now is not None:
            await self._note(used_now)

    async def _sign_in(self, scope: Scope) -> tuple[Access, datetime | None]:
        """Who it is, and when their token was last used. A token that is no good counts against the address it comes from."""
        address = scope["client"][0] if scope.get("client") else "unknown"
        token = _bearer(scope)
        if token is None and (token := _cookie(scope)) is not None:
            self._only_ours(scope)
        if token is None:
            if scope["path"].startswith(CLOSED) and not self._told.take(address):
                log.info("refused", status=401, why="no token", address=address, method=scope["method"], path=scope["path"])
            raise NotSignedIn("not signed in", "the request brings no bearer token", TODO)
        hashed = digest(token)
        wait = 0.0 if hashed in self._good else self._failures.wait(address)
        if wait:
            # Neither the database nor the log hears of it.
            raise throttled(f"too many tokens from {address} were no good", wait)
        try:
            found = await self._look(token, hashed)
        except NotSignedIn as error:
            self._failures.take(address)
            self._good.pop(hashed, None)
            log.warning("refused", status=401, why=error.what, address=address, method=scope["method"], path=scope["path"])
            raise
        self._good[hashed] = None
        if len(self._good) > REMEMBERED:
            self._good.popitem(last=False)
        return found

    def _only_ours(self, scope: Scope) -> None:
        """A browser sends its cookie by itself, so that with one only our own pages may change anything."""
        if scope["method"] not in READING and not same_site(scope, self._base_url):
            log.warning("refused", status=403, why="another site's page", method=scope["method"], path=scope["path"])
            raise Forbidden(
                "the request does not come from this service's own pages", "a cookie alone changes nothing", "send a bearer token"
            )

    async def _look(self, token: str, hashed: str) -> tuple[Access, datetime | None]:
        """Ask the database, unless the token answers for itself, and not for ever."""
        if not well_formed(token):
            raise NotSignedIn("this is no whole token", "a letter of it is wrong, or it was cut off", "copy it again")
        try:
            async with asyncio.timeout(LOOK_S):
                return await to_thread.run_sync(partial(_sign_in, self._store, hashed), abandon_on_cancel=True)
        except (SQLAlchemyError, TimeoutError) as error:
            log.warning("database unavailable", at="sign-in", error=str(error))
            raise Unavailable("the database does not answer", "", "try again; see /readyz") from None

    def _count(self, scope: Scope, access: Access) -> None:
        """Throttled where a token changes things too often. What only reads is not counted."""
        if scope["method"] in READING:
            return
        wait = self._writes.take(f"token {access.token_id}")
        if wait:
            log.warning("refused", status=429, token=access.token, user=access.name, method=scope["method"], path=scope["path"])
            raise throttled(f"the token {access.token} changes things too often", wait)

    async def _note(self, token_id: int) -> None:
        """After the answer, so that nobody waits for it; once, whoever else uses the token just now."""
        if token_id in self._noting:
            return
        self._noting.add(token_id)
        try:
            await to_thread.run_sync(note_use, self._store, token_id)
        finally:
            self._noting.discard(token_id)


def _bearer(scope: Scope) -> str | None:
    """The bearer token of a request."""
    given = next((value for name, value in scope["headers"] if name == b"authorization"), b"").decode("latin-1")
    kind, _, token = given.partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def _cookie(scope: Scope) -> str | None:
    """The token that a browser keeps."""
    found = cookie_parser("; ".join(value.decode("latin-1") for name, value in scope["headers"] if name == b"cookie"))
    return found.get(COOKIE) or None


def _sign_in(store: Database, hashed: str) -> tuple[Access, datetime | None]:
    with store.read() as session:
        return tokens.sign_in(session, hashed)


def note_use(store: Database, token_id: int) -> None:
    """Remember that a token was used. Only information, so a database that is away just now is no failure of the request."""
    try:
        with store.write() as session:
            tokens.note_use(session, token_id)
    except SQLAlchemyError as error:
        log.warning("the use of a token is not noted", token=token_id, error=str(error))
