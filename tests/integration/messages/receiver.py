"""A receiver of messages on loopback that answers what a test says, and remembers what it got."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
Answer = tuple[int, dict[str, str], str]
OK: Answer = (200, {}, "ok")


@dataclass(frozen=True)
class Got:
    """One request."""

    path: str
    headers: dict[str, str]
    text: str

    @property
    def body(self) -> Json:
        found: Json = json.loads(self.text)
        return found

    @property
    def id(self) -> str:
        return self.headers.get("webhook-id", "")

    @property
    def about(self) -> tuple[str, int | None]:
        """Type of the message, and the experiment's id."""
        return self.body["type"], (self.body["data"].get("experiment") or {}).get("id")


@dataclass
class Receiver:
    """Listens until it is closed."""

    answer: Callable[[Got], Answer] = lambda _: OK
    tried: list[Got] = field(default_factory=list)
    """Every request."""
    got: list[Got] = field(default_factory=list)
    """Those that were answered with success."""

    def __post_init__(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.take(self)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
                del format, args

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/hook/secret-part"

    def says(self, answer: Answer) -> None:
        """From now on, whatever it is sent."""
        self.answer = lambda _: answer

    def take(self, handler: BaseHTTPRequestHandler) -> None:
        text = handler.rfile.read(int(handler.headers["content-length"])).decode()
        got = Got(handler.path, {name.lower(): value for name, value in handler.headers.items()}, text)
        self.tried.append(got)
        status, headers, body = self.answer(got)
        if 200 <= status < 300:
            self.got.append(got)
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body.encode())

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
