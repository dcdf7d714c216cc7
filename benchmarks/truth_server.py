"""A server that streams on a fixed beat and writes down when it really sent what.

`python truth_server.py TOKENS FIRST_S STEP_S` prints its port. `GET /truth` gives, for each stream since the last one that was asked
for it, when the request arrived and when its first and its last token were sent, on the monotonic clock that all processes share.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
MODEL = "m"


def chunk(value: Any) -> bytes:
    """One event as one chunk of the body."""
    data = b"data: " + (value if isinstance(value, bytes) else json.dumps(value, separators=(",", ":")).encode()) + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


def choice(finish: str | None, **delta: Any) -> bytes:
    """An event as vLLM writes it."""
    head = {"id": "chatcmpl-0123456789abcdef", "object": "chat.completion.chunk", "created": 1700000000, "model": MODEL}
    return chunk({**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]})


class Beat:
    """What every stream says, and when."""

    def __init__(self, tokens: int, first_s: float, step_s: float) -> None:
        self.tokens, self.first_s, self.step_s = tokens, first_s, step_s
        self.token = choice(None, content=" tok")
        # vLLM names the role when the first token is there, and not before.
        self.first = choice(None, role="assistant", content="") + self.token
        usage = {"prompt_tokens": 8, "completion_tokens": tokens, "total_tokens": tokens + 8}
        self.end = choice("length", content="") + chunk({"id": "c", "choices": [], "usage": usage}) + chunk(b"[DONE]") + b"0\r\n\r\n"
        self.truth: list[tuple[float, float, float]] = []


class Stream(asyncio.Protocol):
    """One connection, one request after the other."""

    def __init__(self, beat: Beat) -> None:
        self.beat, self.loop = beat, asyncio.get_running_loop()
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the wire."""
        self.wire: Any = transport

    def data_received(self, data: bytes) -> None:
        """Answer as soon as the request is whole."""
        at = time.perf_counter()
        self.buffer += data
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        lengths = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if not found or len(body) < sum(lengths):
            return
        self.buffer = b""
        if head.startswith(b"POST"):
            self.wire.write(HEAD)
            self.at, self.sent = at, 0
            self.loop.call_at(self.loop.time() - (time.perf_counter() - at) + self.beat.first_s, self.step)
            self.due = self.loop.time() - (time.perf_counter() - at) + self.beat.first_s
        elif b" /truth" in head:
            self.plain(json.dumps(self.beat.truth).encode())
            self.beat.truth = []
        else:
            self.plain(json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode() if b"/models" in head else b"")

    def plain(self, body: bytes) -> None:
        """A whole answer."""
        self.wire.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    def step(self) -> None:
        """The next token."""
        now = time.perf_counter()
        self.sent += 1
        if self.sent == 1:
            self.first = now
        if self.sent < self.beat.tokens:
            self.wire.write(self.beat.first if self.sent == 1 else self.beat.token)
            # From the beat, not from now: one late token does not make all the others late.
            self.due += self.beat.step_s
            self.loop.call_at(self.due, self.step)
            return
        self.wire.write(self.beat.token + self.beat.end)
        self.beat.truth.append((self.at, self.first, now))
        self.wire.close()


async def main() -> None:
    """Serve until the process is ended."""
    beat = Beat(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
    server = await asyncio.get_running_loop().create_server(lambda: Stream(beat), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    gc.disable()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
