"""Headers that every answer has, whoever made it: browsers guess nothing, frame nothing, tell nobody, and keep nothing."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

YEAR_S = 365 * 86400
ALWAYS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
}
"""What an answer sets itself stays: a page has a policy of its own."""


def security_headers(base_url: str) -> dict[str, str]:
    """The headers of a service that people reach at that address."""
    if base_url.lower().startswith("https:"):
        return ALWAYS | {"strict-transport-security": f"max-age={YEAR_S}"}
    return ALWAYS


class SecurityHeaders:
    """Adds them to every answer that lacks them."""

    def __init__(self, app: ASGIApp, headers: dict[str, str]) -> None:
        self.app = app
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on, and complete the answer's headers."""

        async def completed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, completed if scope["type"] == "http" else send)
