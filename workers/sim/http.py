"""A minimal HTTP/1.1 server: enough for an OpenAI client, and lean, so that tokens leave on time."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

MAX_HEAD = 64 * 1024
MAX_BODY = 64 * 1024 * 1024


@dataclass(frozen=True)
class Request:
    """One request, read whole."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class BadRequest(Exception):
    """What came is not HTTP that this server reads."""


class Responder:
    """Writes one response."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.status = 0

    def is_gone(self) -> bool:
        """Whether the client has hung up."""
        return self._writer.is_closing() or self._reader.at_eof()

    async def send(self, status: int, body: str, content_type: str = "application/json") -> None:
        """A whole response."""
        data = body.encode()
        self._head(status, content_type, f"content-length: {len(data)}")
        self._writer.write(data)
        await self._writer.drain()

    async def send_json(self, status: int, content: object) -> None:
        """A whole response in JSON."""
        await self.send(status, json.dumps(content, separators=(",", ":"), ensure_ascii=False))

    def start_stream(self) -> None:
        """Begin a stream of server-sent events."""
        self._head(200, "text/event-stream; charset=utf-8", "transfer-encoding: chunked")

    async def event(self, data: str) -> None:
        """One event of the stream."""
        payload = f"data: {data}\n\n".encode()
        self._writer.write(b"%x\r\n%b\r\n" % (len(payload), payload))
        await self._writer.drain()

    async def event_json(self, content: Any) -> None:
        """One event in JSON."""
        await self.event(json.dumps(content, separators=(",", ":"), ensure_ascii=False))

    async def end_stream(self) -> None:
        """The clean end of the stream."""
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def reset(self) -> None:
        """Drop the connection without another word: what was not read yet is lost, the client sees a reset."""
        raw = self._writer.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def _head(self, status: int, content_type: str, length: str) -> None:
        self.status = status
        phrase = HTTPStatus(status).phrase
        self._writer.write(f"HTTP/1.1 {status} {phrase}\r\nserver: uvicorn\r\ncontent-type: {content_type}\r\n{length}\r\n\r\n".encode())


Handler = Callable[[Request, Responder], Awaitable[None]]
AccessLog = Callable[[str, Request, int], None]


class HttpServer:
    """Reads requests from each connection and has them handled one after the other."""

    def __init__(self, handler: Handler, access_log: AccessLog) -> None:
        self._handler = handler
        self._access_log = access_log
        self._connections: set[asyncio.Task[None]] = set()

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client's connection, until either side closes it."""
        task = asyncio.current_task()
        if task is not None:
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
        peer = writer.get_extra_info("peername")
        client = f"{peer[0]}:{peer[1]}" if peer else "unknown"
        try:
            with suppress(ConnectionError, TimeoutError, EOFError):
                await self._serve(reader, writer, client)
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: str) -> None:
        while True:
            responder = Responder(reader, writer)
            try:
                request = await _read_request(reader, writer)
            except (BadRequest, ValueError) as error:
                await responder.send_json(400, {"detail": str(error)})
                return
            if request is None:
                return
            try:
                await self._handler(request, responder)
            finally:
                self._access_log(client, request, responder.status)
            if writer.is_closing() or request.headers.get("connection", "").lower() == "close":
                return

    async def close(self) -> None:
        """Break off what is still running."""
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request | None:
    """The next request; None at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError:
        raise BadRequest("the head of the request is too long") from None
    first, *rest = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):  # noqa: PLR2004 - method, target, version
        raise BadRequest("not a request line of HTTP/1.x")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    if "transfer-encoding" in headers:
        raise BadRequest("a body needs a content-length here")
    length = int(headers.get("content-length", "0"))
    if not 0 <= length <= MAX_BODY:
        raise BadRequest("the body is too long")
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await reader.readexactly(length) if length else b""
    return Request(words[0], words[1].partition("?")[0], headers, body)
