"""One try of one message: to an address that is allowed, within a time limit, without following anybody elsewhere."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version

import httpx

from service.domain import backoff
from service.domain.errors import UsageError
from service.domain.messages import Message
from service.domain.targets import PORTS, AllowList, Target, masked, parse_target, refusal
from workers.notify import slack, webhook

TIMEOUT_S = 15.0
"""For the whole try, from the name's resolution to the end of the answer."""
ANSWER_BYTES = 2000
_PAUSING = frozenset({429, 503})
_REDIRECTS = range(300, 400)

Resolve = Callable[[str, int], Awaitable[list[str]]]


@dataclass(frozen=True)
class Letter:
    """A message with everything that its sending needs."""

    kind: str
    url: str
    secrets: tuple[str, ...]
    message_id: str
    message: Message
    perhaps_sent: bool = False
    """It may have arrived before. A webhook's receiver tells that by its id; at Slack there is only the reader."""


@dataclass(frozen=True)
class Answer:
    """What came of a try. `error` is None where the receiver took the message."""

    seconds: float
    http_status: int | None = None
    error: str | None = None
    text: str = ""
    pause_s: float | None = None
    unsure: bool = False
    """There is an error, and the message may have arrived all the same: it was on its way when it happened."""


async def resolve(host: str, port: int) -> list[str]:
    """The addresses that a name stands for, in the system's order.

    Each look-up has a thread of its own, which nobody waits for at the end: in a pool a dead name server would hold up every other.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[str]] = loop.create_future()

    def settle(addresses: list[str] | None, error: Exception | None) -> None:
        if found.done():
            return  # the time was up
        if error is not None:
            found.set_exception(error)
        else:
            found.set_result(addresses or [])

    def look() -> None:
        try:
            items = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            answer: tuple[list[str] | None, Exception | None] = (list(dict.fromkeys(str(item[4][0]) for item in items)), None)
        except (OSError, UnicodeError) as error:  # the latter of a name that is too long for any name server
            answer = (None, error)
        with suppress(RuntimeError):  # the loop has ended, and nobody asks any more
            loop.call_soon_threadsafe(settle, *answer)

    threading.Thread(target=look, name="resolve", daemon=True).start()
    return await found


def client() -> httpx.AsyncClient:
    """A client that follows nobody, asks no proxy, and keeps no connection: the next message may go to another name there."""
    limits = httpx.Limits(max_keepalive_connections=0)
    return httpx.AsyncClient(follow_redirects=False, trust_env=False, verify=_trust(), limits=limits, timeout=TIMEOUT_S)


@cache
def _trust() -> ssl.SSLContext:
    """The authorities; reading them takes longer than most messages."""
    return httpx.create_ssl_context(trust_env=False)


async def send(
    http: httpx.AsyncClient, letter: Letter, allow: AllowList, base_url: str = "", *, timeout_s: float = TIMEOUT_S, names: Resolve = resolve
) -> Answer:
    """Try once. Never raises for what a receiver, a name server or a network does."""
    begun, on_its_way = time.monotonic(), asyncio.Event()
    try:
        async with asyncio.timeout(timeout_s):
            answer = await _send(http, letter, allow, base_url, names, on_its_way)
    except TimeoutError:
        answer = Answer(0.0, error=f"no answer within {timeout_s:.0f} s")
    except UsageError as error:
        answer = Answer(0.0, error=str(error))
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
        answer = Answer(0.0, error=f"{type(error).__name__}: {error}".rstrip(": "))
    secrets = (letter.url, *letter.secrets)
    told = None if answer.error is None else masked(answer.error, secrets)
    unsure = on_its_way.is_set() and answer.http_status is None
    return Answer(time.monotonic() - begun, answer.http_status, told, masked(answer.text, secrets), answer.pause_s, unsure)


async def _send(
    http: httpx.AsyncClient, letter: Letter, allow: AllowList, base_url: str, names: Resolve, on_its_way: asyncio.Event
) -> Answer:
    async def trace(event: str, _info: object) -> None:
        if event.endswith("send_request_headers.started"):
            on_its_way.set()

    target = parse_target(letter.kind, letter.url)
    address = await _address(letter.kind, target, allow, names)
    request = _request(http, letter, target, address, base_url)
    request.extensions["trace"] = trace
    response = await http.send(request, stream=True)
    try:
        text = await _beginning(response)
    finally:
        await response.aclose()
    return _judged(response, text)


async def _address(kind: str, target: Target, allow: AllowList, names: Resolve) -> str:
    """The address to connect to. It is this one that was checked, whatever the name stands for a moment later."""
    try:
        found = await names(target.host, target.port)
    except socket.gaierror as error:
        raise UsageError(f"{target.host} cannot be resolved", error.strerror or str(error), "") from None
    usable = allow.usable(kind, target.host, found)
    if not usable:
        raise refusal(kind, target.host, found, allow)
    return usable[0]


def _request(http: httpx.AsyncClient, letter: Letter, target: Target, address: str, base_url: str) -> httpx.Request:
    host = f"[{target.host}]" if ":" in target.host else target.host
    named = host if target.port == PORTS[target.scheme] else f"{host}:{target.port}"
    headers = {"host": named, "content-type": "application/json", "user-agent": f"expctl/{version('expctl')}"}
    if letter.kind == "slack":
        body = slack.render(letter.message, base_url, perhaps_sent=letter.perhaps_sent)
    else:
        body = webhook.render(letter.message, base_url)
        headers |= webhook.headers(letter.secrets, letter.message_id, body, datetime.now(UTC))
    # The certificate is checked for the name, although the connection goes to the address.
    url = httpx.URL(letter.url).copy_with(host=address)
    return http.build_request("POST", url, content=body, headers=headers, extensions={"sni_hostname": target.host})


async def _beginning(response: httpx.Response) -> str:
    data = b""
    async for piece in response.aiter_raw():
        data += piece
        if len(data) >= ANSWER_BYTES:
            break
    return data[:ANSWER_BYTES].decode("utf-8", "replace")


def _judged(response: httpx.Response, text: str) -> Answer:
    status = response.status_code
    if response.is_success:
        return Answer(0.0, status, text=text)
    if status in _REDIRECTS:
        return Answer(0.0, status, f"answered {status}, a redirect, and redirects are not followed", text)
    pause = backoff.pause_s(response.headers.get("retry-after"), datetime.now(UTC)) if status in _PAUSING else None
    return Answer(0.0, status, f"answered {status} {response.reason_phrase}".rstrip(), text, pause)
