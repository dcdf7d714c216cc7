"""One HTTP exchange on a connection that is open before the clock starts.

A read is stamped at the moment asyncio hands it over, and parsed in a later turn of the event loop. All sockets that were
readable together are thus stamped before any of them costs time to parse.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Mapping
from typing import Protocol

import httptools

from workers.bench.stream_reading import End
from workers.bench.target import Target
from workers.bench.turns import turns_of

_INFORMATIONAL = 200
"""Statuses below come before the response proper."""
_BODILESS = frozenset({204, 304})
_AFTER_DONE_S = 2.0
"""How long the end of the response may take once the answer said it is done."""


class Sink(Protocol):
    """Takes the response as it arrives."""

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """The head is complete; names of headers are in lower case."""

    def feed(self, data: bytes, at: float) -> bool:
        """A part of the body, with the time of its read; True once the answer is done."""


class Exchange(asyncio.Protocol):
    """An open connection, good for one request and its response."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._turns = turns_of(self._loop)
        self._ended: asyncio.Future[tuple[End, str]] = self._loop.create_future()
        self._reads: list[tuple[bytes, float]] = []
        self._drain_due = False
        self._transport: asyncio.Transport | None = None
        self._sink: Sink | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._framed = False
        self._in_body = False
        self._at = 0.0
        self._grace: asyncio.TimerHandle | None = None

    # What the caller uses.

    async def run(self, request: bytes, sink: Sink, timeout_s: float) -> tuple[float, float, End, str]:
        """Send the request and read its response: when it was sent, when it ended, how, and why where it failed."""
        self._sink = sink
        started = time.perf_counter()
        if self._transport is not None:
            self._transport.write(request)
        try:
            async with asyncio.timeout(timeout_s):
                end, why = await self._ended
        except TimeoutError:
            end, why = End.TIMEOUT, f"no end of the response within {timeout_s:g} s"
        finally:
            ended = time.perf_counter()
            self.close()
        return started, ended, end, why

    def close(self) -> None:
        """Let go of the connection."""
        if self._grace is not None:
            self._grace.cancel()
        if self._transport is not None:
            self._transport.abort()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Watch a peer that vanishes without a word."""
        if isinstance(transport, asyncio.Transport):
            self._transport = transport
        sock = transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError, AttributeError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)

    def data_received(self, data: bytes) -> None:
        """Stamp first, parse later."""
        self._reads.append((data, time.perf_counter()))
        if not self._drain_due:
            self._drain_due = True
            self._turns.parse(self._drain)

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side closed or broke the connection."""
        self._drain()
        if self._in_body and not self._framed and exc is None:
            self._end(End.COMPLETE)
        else:
            self._end(End.LOST, str(exc) if exc else "the server closed the connection before the response's end")

    # Parsing.

    def _drain(self) -> None:
        self._drain_due = False
        reads, self._reads = self._reads, []
        try:
            for data, self._at in reads:
                if not self._ended.done():
                    self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(End.GARBLED, f"the server's answer is no HTTP: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it is, it must reach the one who waits
            if not self._ended.done():
                self._ended.set_exception(error)

    def _end(self, end: End, why: str = "") -> None:
        if not self._ended.done():
            self._ended.set_result((end, why))

    # What httptools calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        """See whether the body's length is told; else it ends with the connection."""
        lower = name.lower()
        if not self._in_body:
            self._headers[lower.decode("latin-1")] = value.decode("latin-1")
        if lower == b"content-length" or (lower == b"transfer-encoding" and b"chunked" in value.lower()):
            self._framed = True

    def on_headers_complete(self) -> None:
        """The head has arrived."""
        status = self._parser.get_status_code()
        if status >= _INFORMATIONAL and self._sink is not None:
            self._in_body = status not in _BODILESS
            self._sink.begin(status, self._headers)

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if self._sink is not None and self._sink.feed(body, self._at) and self._grace is None:
            # A server may keep the connection open behind [DONE]; nothing that counts comes any more.
            self._grace = self._loop.call_later(_AFTER_DONE_S, self._end, End.COMPLETE)

    def on_message_complete(self) -> None:
        """The response, or a 100 Continue before it, is complete."""
        if self._parser.get_status_code() >= _INFORMATIONAL:
            self._end(End.COMPLETE)
        else:
            self._framed = False
            self._headers = {}


async def connect(target: Target) -> Exchange:
    """Open a connection, TLS included."""
    loop = asyncio.get_running_loop()
    await turns_of(loop).opening()
    async with asyncio.timeout(target.connect_timeout_s):
        _, exchange = await loop.create_connection(Exchange, target.host, target.port, ssl=target.tls)
    return exchange
