"""A scripted server on the loopback, for what talks HTTP."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from service.domain.spec import Spec
from workers.engines.base import Engine, HostDefaults
from workers.engines.registry import make_engine

CHAT = {"choices": [{"message": {"role": "assistant", "content": "Yes"}}], "usage": {"completion_tokens": 1}}


@dataclass
class Server:
    """`answers` maps a path to status and body; `asked` keeps method, path, headers and body of every request."""

    url: str = ""
    answers: dict[str, tuple[int, object]] = field(default_factory=dict)
    asked: list[tuple[str, str, dict[str, str], object]] = field(default_factory=list)

    def serves(self, *models: str) -> None:
        self.answers |= {
            "/v1/models": (200, {"data": [{"id": model} for model in models]}),
            "/v1/chat/completions": (200, CHAT),
            "/version": (200, {"version": "0.32.0"}),
        }

    def body(self, path: str) -> object:
        return next(body for _, asked, _, body in self.asked if asked == path)


@pytest.fixture
def server() -> Iterator[Server]:
    script = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(size)) if size else None
            script.asked.append((self.command, self.path, dict(self.headers), body))
            status, answer = script.answers.get(self.path, (404, {"detail": "Not Found"}))
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", str(answer))
            content = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815 - http.server's name

        def log_message(self, *_args: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        made.daemon_threads = True
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        script.url = f"http://127.0.0.1:{made.server_address[1]}"
        yield script
        made.shutdown()
        thread.join()


@pytest.fixture
def dead_url() -> Iterator[str]:
    """An address where nobody listens, held so that nobody can."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def engine_of() -> Callable[..., Engine]:
    def make(environ: dict[str, str] | None = None, defaults: HostDefaults | None = None, **engine: object) -> Engine:
        spec = Spec.model_validate({"name": "test", "engine": engine})
        return make_engine(spec, defaults or HostDefaults(8001, {}), environ or {})

    return make
