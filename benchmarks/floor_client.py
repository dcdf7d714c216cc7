"""The least that a client in Python can do: raw asyncio protocols, connections open before the clock, no parsing at all.

`python floor_client.py PORT STREAMS REQUESTS` prints the mean TTFT and TPOT, milliseconds, as JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from typing import Any

BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 100, "stream": True}).encode()
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
    len(BODY),
    BODY,
)
TOKEN = b'"content":" tok"'


class Asked(asyncio.Protocol):
    """One request; stamps the reads that hold tokens."""

    def __init__(self) -> None:
        self.done = asyncio.get_running_loop().create_future()
        self.first = self.last = 0.0
        self.tokens = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the wire."""
        self.wire: Any = transport

    def data_received(self, data: bytes) -> None:
        """Stamp first."""
        at = time.perf_counter()
        found = data.count(TOKEN)
        if found:
            self.first, self.last, self.tokens = self.first or at, at, self.tokens + found

    def connection_lost(self, exc: Exception | None) -> None:
        """The server closes behind each answer."""
        if not self.done.done():
            self.done.set_result(exc)


async def main() -> None:
    """A closed loop of so many streams."""
    port, streams, requests = (int(word) for word in sys.argv[1:4])
    loop, found = asyncio.get_running_loop(), []
    gc.disable()

    async def one(asked: Asked, left: int) -> None:
        while True:
            started = time.perf_counter()
            asked.wire.write(REQUEST)
            await asked.done
            found.append((asked.first - started, (asked.last - asked.first) / (asked.tokens - 1)))
            left -= 1
            if not left:
                return
            _, asked = await loop.create_connection(Asked, "127.0.0.1", port)

    opened = [(await loop.create_connection(Asked, "127.0.0.1", port))[1] for _ in range(streams)]
    await asyncio.gather(*(one(asked, requests // streams) for asked in opened))
    ttft, tpot = (1000 * sum(values) / len(values) for values in zip(*found, strict=True))
    print(json.dumps({"ttft_ms": ttft, "tpot_ms": tpot}))


if __name__ == "__main__":
    asyncio.run(main())
