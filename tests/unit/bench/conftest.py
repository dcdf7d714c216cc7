"""A scripted HTTP server on real loopback sockets, and words for what it says."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from service.domain.spec import Bench, Prompt
from tests.streamsteps import HANG, RST, Step, play
from workers.bench.target import Target

Script = Callable[["Asked"], list[Step]]


@dataclass
class Asked:
    number: int
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Server:
    """Plays the steps that its script has for a request, and then closes."""

    script: Script
    asked: list[Asked] = field(default_factory=list)
    port: int = 0
    at_once: int = 0
    most_at_once: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            asked = Asked(len(self.asked), first.split()[1], headers, json.loads(body) if body else None)
            self.asked.append(asked)
            steps = self.script(asked)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            await play(steps[:-1], reader, writer)
            # Before the last step: once it is out, the client may have sent its next request already.
            self.at_once -= 1
            await play(steps[-1:], reader, writer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()


class Words:
    """What a server says."""

    RST, HANG = RST, HANG
    DONE = b"data: [DONE]\n\n"
    END = b"0\r\n\r\n"

    def head(self, status: str = "200 OK", framing: str = "transfer-encoding: chunked") -> bytes:
        kind = "text/event-stream" if status.startswith("200") else "application/json"
        return f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{framing}\r\n\r\n".replace("\r\n\r\n\r\n", "\r\n\r\n").encode()

    def piece(self, data: bytes) -> bytes:
        return b"%x\r\n%s\r\n" % (len(data), data)

    def data(self, value: Any) -> bytes:
        return f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()

    def delta(self, finish: str | None = None, usage: dict[str, Any] | None = None, **delta: Any) -> bytes:
        value: dict[str, Any] = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        return self.data(value if usage is None else {**value, "usage": usage})

    def usage(self, completion: int, prompt: int = 9, **more: Any) -> bytes:
        return self.data({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion, **more}})

    def refusal(self, status: str, body: str) -> list[Step]:
        data = body.encode()
        return [self.head(status, f"content-length: {len(data)}") + data]

    def stream(self, *parts: Step, end: bool = True) -> list[Step]:
        """A chunked response of these parts, each in a write of its own."""
        steps = [self.piece(part) if isinstance(part, bytes) else part for part in parts]
        return [self.head(), *steps, *([self.END] if end else [])]

    def good(self, text: str = "abcde", pause: float = 0.005) -> list[Step]:
        """A whole answer, a token a character."""
        parts: list[Step] = [self.delta(role="assistant", content="")]
        for sign in text:
            parts += [pause, self.delta(content=sign)]
        return self.stream(*parts, self.delta("stop"), self.usage(len(text)), self.DONE)


@pytest.fixture
def say() -> Words:
    return Words()


@pytest.fixture
def serve() -> Iterator[Callable[[Script], Server]]:
    """Start scripted servers; all of them end with the test."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    servers: list[asyncio.Server] = []
    handlers: set[asyncio.Task[None]] = set()

    async def listen(server: Server) -> None:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            handlers.add(task)
            await server.answer(reader, writer)

        listening = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=512)
        server.port = listening.sockets[0].getsockname()[1]
        servers.append(listening)

    def start(script: Script) -> Server:
        server = Server(script)
        asyncio.run_coroutine_threadsafe(listen(server), loop).result(5)
        return server

    async def end() -> None:
        # A connection in the middle of being accepted would leak its socket if its server closed now.
        await asyncio.sleep(0.02)
        for server in servers:
            server.close()
        for task in handlers:
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
        await asyncio.sleep(0.01)

    yield start
    asyncio.run_coroutine_threadsafe(end(), loop).result(5)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(5)
    loop.close()


@pytest.fixture
def target() -> Callable[..., Target]:
    def make(server: Server, **more: Any) -> Target:
        return Target(f"{server.url}/v1", "m", **more)

    return make


@pytest.fixture
def asked() -> Callable[..., Bench]:
    """A small benchmark: one prompt, once."""

    def make(count: int = 1, **more: Any) -> Bench:
        prompts = [Prompt(id=f"p{i}", messages=[{"role": "user", "content": f"x{i}"}]) for i in range(count)]
        return Bench(**{"prompts": prompts, "max_tokens": 64, "repeat": 1, "warmup": 0, "concurrency": [1], **more})

    return make
