"""How much a request may bring along."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.problems import problem
from service.domain.errors import TooLarge

MOST_BYTES = 8 * 1024 * 1024
"""Thirty times the largest experiment file, for prompts and sweeps are written out before they are sent."""
DRAINED_BYTES = 8 * MOST_BYTES
"""A client that is still sending would not read an answer, so that much more is read and thrown away."""


class BodyLimit:
    """Refuses larger bodies with 413, whether or not their length is said beforehand.

    The whole body is read before the app sees the request: an error raised between its pieces would be taken for a broken
    connection, and no route here can use half a body.
    """

    def __init__(self, app: ASGIApp, most: int = MOST_BYTES) -> None:
        self.app = app
        self.most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on what is small enough."""
        names = {name for name, _ in scope.get("headers", ())}
        if scope["type"] != "http" or not names & {b"content-length", b"transfer-encoding"}:
            await self.app(scope, receive, send)
            return
        pieces, length = await self._read(receive)
        if length > self.most:
            await _refuse(self.most, scope, receive, send)
            return

        rest = iter(pieces)

        async def again() -> Message:
            return next(rest, None) or await receive()

        await self.app(scope, again, send)

    async def _read(self, receive: Receive) -> tuple[list[Message], int]:
        pieces: list[Message] = []
        length = 0
        while True:
            message = await receive()
            length += len(message.get("body", b""))
            if length <= self.most:
                pieces.append(message)
            if not message.get("more_body", False) or length > self.most + DRAINED_BYTES:
                return pieces, length


async def _refuse(most: int, scope: Scope, receive: Receive, send: Send) -> None:
    error = TooLarge(
        "the request is too large",
        f"its body has more than {most:,} bytes",
        "submit less at once, or shorter prompts",
    )
    answer = problem(error.http_status, error.slug, error.what, error.why, todo=error.todo)
    answer.headers["connection"] = "close"
    await answer(scope, receive, send)
