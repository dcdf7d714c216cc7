"""A service without tokens must not be steered by a web page that a browser on the same machine happens to show."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.problems import problem

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
FORBIDDEN = 403


class LoopbackOnly:
    """Refuses requests that name another host (DNS rebinding), or that come from another site's page."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let pass what is local, answer 403 to the rest."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        named = _host(f"//{headers.get('host', '')}")
        origin = headers.get("origin")
        if named in LOOPBACK and (origin is None or _host(origin) in LOOPBACK):
            await self.app(scope, receive, send)
            return
        detail = "this service listens on loopback and has no tokens, so it answers only to this machine's own names"
        answer = problem(FORBIDDEN, "forbidden", "the request is not meant for this service", detail, todo="use http://127.0.0.1:PORT")
        await answer(scope, receive, send)


def same_site(scope: Scope, base_url: str) -> bool:
    """Whether a browser says that one of this service's own pages sent the request.

    By its origin, port included: another service on this machine is another site. A proxy may have put another name into `Host`,
    so the address that people reach the service at counts as well. Whoever says nothing is no page of ours.
    """
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    origin = _netloc(headers.get("origin", ""))
    return origin != "" and origin in {_netloc(f"//{headers.get('host', '')}"), _netloc(base_url)}


def _netloc(url: str) -> str:
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:
        return ""


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""
