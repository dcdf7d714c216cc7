"""Each fault of a stream at each place in it: what a scripted server sends, and the verdict that is right.

One server plays every cell: its path names the fault and the place. The right verdicts are written out here by hand.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tests.streamsteps import HANG, RST, Step, play

HANG_S = 1.0
"""How long a client should wait for an answer here."""

SPLINTER = 5
"""Bytes of a piece that is cut without regard to characters and lines."""


def event(value: Any) -> bytes:
    """One event of a stream."""
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def delta(finish: str | None = None, **fields: Any) -> bytes:
    """An event with one delta."""
    return event({"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]})


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
END = b"0\r\n\r\n"
USAGE = event({"id": "c", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}})
DONE = b"data: [DONE]\n\n"
TEXT = "Grüße 🙂"
PARTS: dict[str, bytes] = {
    "role": delta(role="assistant", content=""),
    "reasoning": delta(reasoning="hm"),
    "first": delta(content="Grü"),
    "text": delta(content="ße 🙂"),
    "finish": delta("stop", content=""),
    "usage": USAGE,
    "done": DONE,
}
CHARACTER = PARTS["text"].index("🙂".encode()) + 2
"""Where the last text's event is cut: in the middle of a character."""

PLACES = ("nothing", "head", "role", "reasoning", "first", "character", "text", "finish", "usage", "done")
"""What the server has sent last when the fault comes."""

ERROR = {"error": {"message": "EngineCore encountered an issue. See stack trace (above).", "type": "InternalServerError", "code": 500}}
ODD = json.dumps(ERROR["error"]).encode()
AFTER_HEAD = PLACES[1:]
BEFORE_DONE = PLACES[1:-1]


def sent_until(place: str) -> bytes:
    """The stream's own bytes up to a place, without the head."""
    if place in {"nothing", "head"}:
        return b""
    if place == "character":
        return PARTS["role"] + PARTS["reasoning"] + PARTS["first"] + PARTS["text"][:CHARACTER]
    names = list(PARTS)
    return b"".join(PARTS[name] for name in names[: names.index(place) + 1])


WHOLE = b"".join(PARTS.values())


def piece(data: bytes) -> bytes:
    """A chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data) if data else b""


def _ending(fault: str) -> list[Step]:
    """What comes behind the place; the connection is closed after it."""
    endings: dict[str, list[Step]] = {
        "clean end": [END],
        "close without the last chunk": [],
        "reset": [0.05, RST],
        "hang": [HANG],
        "error, then [DONE]": [piece(b"\n\n" + event(ERROR) + DONE), END],
        "error alone": [piece(b"\n\n" + event(ERROR)), END],
        "error in an event of its own": [piece(b"\n\nevent: error\ndata: " + ODD + b"\n\n"), END],
        "error: field": [piece(b"\n\nerror: " + ODD + b"\n\n" + DONE), END],
        "abort": [piece(b"\n\n" + delta("abort", content="") + USAGE + DONE), END],
        "no HTTP any more": [b"what is this?\r\n\r\n"],
    }
    return endings[fault]


ENDINGS = (
    "clean end",
    "close without the last chunk",
    "reset",
    "hang",
    "error, then [DONE]",
    "error alone",
    "error in an event of its own",
    "error: field",
    "abort",
    "no HTTP any more",
)
GOES_ON = ("pause", "comments", "in splinters", "junk event", "null deltas")
"""What disturbs and does no harm: the stream goes on to its end."""
DROPPED = {"role": (), "usage": ("usage_missing",), "done": ("done_missing",), "finish": ("finish_reason_missing",)}
"""What a stream may lack and still count, with the warning that says so."""


@dataclass(frozen=True)
class Cell:
    """A fault at a place, and the verdict that is right."""

    fault: str
    place: str
    steps: tuple[Step, ...]
    reason: str | None
    """None: the request is ok."""
    warnings: tuple[str, ...] = ()
    tokens: int | None = 4

    @property
    def path(self) -> str:
        """Where the server plays it."""
        return f"{self.fault}/{self.place}".replace(" ", "_").replace("[", "").replace("]", "").replace(":", "").replace(",", "")


def _reason(fault: str, place: str) -> str | None:
    ended = place == "done" or (place in {"finish", "usage"} and fault == "clean end")
    if fault == "abort":
        return "aborted_by_server"
    if fault.startswith("error"):
        return "engine_dead"
    if ended:
        return None
    if fault == "no HTTP any more":
        return "bench_error"
    if fault == "hang":
        return "request_timeout"
    return "truncated_stream" if fault == "clean end" and place != "nothing" else "connection_lost"


def _breaking() -> Iterator[Cell]:
    for fault in ENDINGS:
        inside = fault.startswith("error") or fault == "abort"
        for place in BEFORE_DONE if inside else PLACES:
            start: tuple[Step, ...] = () if place == "nothing" else (HEAD, *filter(None, [piece(sent_until(place))]))
            steps = () if place == "nothing" and fault == "clean end" else tuple(_ending(fault))
            reason = _reason(fault, place)
            missing = {
                "usage_missing": place == "finish",
                "done_missing": place in {"finish", "usage"},
                "closed_badly_after_done": fault not in {"clean end", "hang"},
            }
            warnings = tuple(name for name, holds in missing.items() if holds) if reason is None else ()
            yield Cell(fault, place, start + steps, reason, warnings, None if place == "finish" else 4)


def _disturbing() -> Iterator[Cell]:
    for fault in GOES_ON:
        for place in AFTER_HEAD:
            before = sent_until(place)
            rest = WHOLE[len(before) :]
            between: dict[str, list[Step]] = {
                "pause": [0.08, piece(rest)],
                "comments": [piece(b": still there\n\n" + rest)] if place != "character" else [piece(rest)],
                "in splinters": [piece(rest[i : i + SPLINTER]) for i in range(0, len(rest), SPLINTER)],
                "junk event": [piece(b"data: {\n\n" + rest)] if place != "character" else [piece(rest + b"data: {\n\n")],
                "null deltas": [piece(delta(content=None) + rest)] if place != "character" else [piece(rest)],
            }
            junk = ("unreadable_event",) if fault == "junk event" else ()
            steps = (HEAD, *filter(None, [piece(before)]), *between[fault], END)
            yield Cell(fault, place, steps, None, junk)


def _lacking() -> Iterator[Cell]:
    for name, warnings in DROPPED.items():
        body = b"".join(part for key, part in PARTS.items() if key != name)
        yield Cell(f"no {name}", "whole", (HEAD, piece(body), END), None, warnings, None if name == "usage" else 4)
    no_end = b"".join(part for key, part in PARTS.items() if key not in {"finish", "done"})
    yield Cell("no finish and no [DONE]", "whole", (HEAD, piece(no_end), END), "truncated_stream")
    empty = PARTS["role"] + PARTS["finish"] + event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 0}}) + DONE
    yield Cell("no token", "whole", (HEAD, piece(empty), END), "empty_output")
    cr, crlf = (b"".join(PARTS.values()).replace(b"\n", end) for end in (b"\r", b"\r\n"))
    yield Cell("lines end in CR", "whole", (HEAD, piece(cr), END), None)
    yield Cell("lines end in CRLF", "whole", (HEAD, piece(crlf), END), None)
    yield Cell("last event without a blank line", "whole", (HEAD, piece(WHOLE.rstrip(b"\n")), END), None)


def _refused() -> Iterator[Cell]:
    for status, body, reason in (
        ("500 Internal Server Error", '{"error":{"message":"EngineCore died"}}', "engine_dead"),
        ("503 Service Unavailable", '{"error":{"code":503,"message":"Loading model"}}', "engine_unresponsive"),
        ("429 Too Many Requests", "slow down", "request_refused"),
        ("200 OK", '{"error":{"message":"EngineCore died","code":500}}', "engine_dead"),
    ):
        data = body.encode()
        head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\nconnection: close\r\n\r\n"
        yield Cell(f"status {status[:3]}, no stream", "nothing", (head.encode() + data,), reason)


CELLS: tuple[Cell, ...] = (*_breaking(), *_disturbing(), *_lacking(), *_refused())


class FaultServer:
    """Plays the cell that the path names: `http://127.0.0.1:PORT/<path>/v1/chat/completions`."""

    def __init__(self) -> None:
        self.port = 0
        self._cells = {cell.path: cell for cell in CELLS}

    def url(self, cell: Cell) -> str:
        """The base URL of a cell."""
        return f"http://127.0.0.1:{self.port}/{cell.path}/v1"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request."""
        with suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lengths = [line.partition(":")[2] for line in head.lower().split("\r\n") if line.startswith("content-length:")]
            await reader.readexactly(int(lengths[0]) if lengths else 0)
            path = head.split()[1].removeprefix("/").partition("/v1/")[0]
            await play(self._cells[path].steps, reader, writer)
        writer.close()


@contextmanager
def fault_server() -> Iterator[FaultServer]:
    """A server in a thread of its own."""
    server = FaultServer()
    ready, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        listening = await asyncio.start_server(server.answer, "127.0.0.1", 0, backlog=512)
        server.port = listening.sockets[0].getsockname()[1]
        ready.set()
        await stop.wait()
        listening.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0.02)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    ready.wait(5)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(5)
        loop.close()
