"""An expctl service that says what a test tells it to, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]


def item(number: int = 41, **changes: Any) -> Json:
    base: Json = {
        "id": number, "name": "base", "host": "local", "created_by": "ann", "status": "queued", "outcome": None, "attempt": 1,
        "status_text": "Queued", "where_text": "next on its host", "evidence": "", "remedy": None, "spec_hash": "9f3c1e2aaaa",
        "created_at": "2026-11-30T20:00:00Z", "started_at": None, "finished_at": None, "facts": {}, "steps": [],
        "spec": {"name": "base", "engine": {"kind": "vllm", "model": "m"}, "bench": {"prompts": "five"}},
    }  # fmt: skip
    return {**base, **changes}


FAILED = item(status="finished", outcome="failed", status_text="Failed: it broke", where_text="")


@dataclass
class FakeService:
    """Answers by method and path, without the query; a function gives a new one each time."""

    answers: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    url: str = ""
    over: threading.Event = field(default_factory=threading.Event)
    """Set when the test is over: streams end."""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.asked.append(f"{handler.command} {handler.path}")
        self.headers.append(dict(handler.headers))
        self.bodies.append(handler.rfile.read(int(handler.headers.get("content-length") or 0)))
        path = urlsplit(handler.path).path
        if path.endswith(("/logs/stream", "/v1/events")):
            self._stream(handler, path)
            return
        found = self.answers.get(f"{handler.command} {path}")
        found = found() if callable(found) else found
        status, body = found if isinstance(found, tuple) else (200, found)
        if found is None:
            status, body = 404, {"reason": "not-found", "title": f"nothing at {path}"}
        self._send(handler, status, body)

    def _send(self, handler: BaseHTTPRequestHandler, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        handler.send_response(status)
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def _stream(self, handler: BaseHTTPRequestHandler, path: str) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.end_headers()
        piece = json.dumps({"id": 1, "step": "load", "text": "loading"})
        said = ": nothing happens\n\n" if path.endswith("/events") else f"id: 1\nevent: log\ndata: {piece}\n\n"
        handler.wfile.write(said.encode())
        self.over.wait()


class Watched:
    """A client whose experiment goes on from moment to moment, with an event for each."""

    def __init__(self, *moments: Json) -> None:
        self.moments, self.at, self.patience_s = list(moments), 0, 0.0

    def experiment(self, number: int) -> Json:
        return self.moments[self.at] | {"id": number}

    def events(self, number: int, after: int = 0) -> list[Json]:
        del number, after
        return []

    def stream(self, path: str, params: Json) -> Iterator[tuple[str, Json]]:
        del path, params
        for number in range(1, len(self.moments)):
            self.at = number
            yield str(number), {"id": number, "experiment_id": self.moments[0]["id"]}


def serving(service: FakeService) -> ThreadingHTTPServer:
    """A server that answers with the service, on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def _any(self) -> None:
            service.answer(self)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _any  # noqa: N815 - the library's names

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    service.url = f"http://127.0.0.1:{server.server_address[1]}"
    return server
