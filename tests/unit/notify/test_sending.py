"""One try: where it goes, how long it may take, and what of it may be told."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from service.domain.messages import probe_message
from service.domain.targets import AllowList
from workers.notify import sending
from workers.notify.sending import Answer, Letter

SECRET = "whsec_" + "A" * 32


class Server:
    """Answers with what a test says, at once or never."""

    def __init__(self) -> None:
        server = self
        self.hosts: list[str] = []
        self.status, self.headers, self.text = 200, {"x": "y"}, "ok"
        self.hang = False
        self.over = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                server.hosts.append(self.headers["host"])
                self.rfile.read(int(self.headers["content-length"]))
                if server.hang:
                    server.over.wait(20)
                    return
                self.send_response(server.status)
                for name, value in server.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(server.text.encode())

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
                del format, args

        self.listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.listening.daemon_threads = True
        self.port = self.listening.server_address[1]


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.listening.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.over.set()
    made.listening.shutdown()
    made.listening.server_close()
    thread.join()


def send(url: str, allow: str, addresses: list[list[str]] | None = None, timeout_s: float = 10.0) -> Answer:
    """Send a test message; `addresses` is what the name server answers, one list a question."""
    letter = Letter("webhook", url, (SECRET,), "msg_1", probe_message("hook", "ann", datetime.now(UTC)))
    asked = iter(addresses or [])

    async def names(host: str, port: int) -> list[str]:
        del host, port
        return next(asked)

    async def sent() -> Answer:
        async with sending.client() as http:
            chosen = sending.resolve if addresses is None else names
            return await sending.send(http, letter, AllowList.parse(allow), timeout_s=timeout_s, names=chosen)

    return asyncio.run(sent())


def test_it_goes_to_the_address_that_was_checked(server: Server) -> None:
    answer = send(f"http://hook.corp.example:{server.port}/in", "hook.corp.example, 127.0.0.0/8", [["127.0.0.1"]])
    assert (answer.http_status, answer.error, answer.text) == (200, None, "ok")
    assert server.hosts == [f"hook.corp.example:{server.port}"]


def test_a_name_that_moves_to_this_machine_gets_nothing(server: Server) -> None:
    answer = send(f"http://hook.corp.example:{server.port}/in", "hook.corp.example", [["127.0.0.1", "169.254.169.254"]])
    assert answer.error is not None
    assert "stands for 127.0.0.1, 169.254.169.254, which is not public" in answer.error
    assert server.hosts == []


def test_a_real_name_is_resolved_without_waiting_for_others(server: Server) -> None:
    assert send(f"http://localhost:{server.port}/in", "localhost").error is None


def test_a_name_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert send("http://hook.corp.example/in", "*.corp.example").error == "hook.corp.example cannot be resolved; Name or service not known"


def test_a_name_that_is_too_long_for_any_name_server() -> None:
    error = send(f"http://{'x' * 64}.corp.example/in", "*.corp.example", timeout_s=5.0).error
    assert error is not None
    assert error.startswith("UnicodeError: ")


def test_a_receiver_that_says_nothing_is_left_when_the_time_is_up(server: Server) -> None:
    server.hang = True
    answer = send(f"http://127.0.0.1:{server.port}/in", "127.0.0.1", timeout_s=0.3)
    assert answer.error == "no answer within 0 s"
    assert 0.2 < answer.seconds < 5
    assert answer.unsure, "it may have arrived"


def test_a_redirect_is_a_failure(server: Server) -> None:
    server.status, server.headers = 302, {"location": f"http://127.0.0.1:{server.port}/elsewhere"}
    answer = send(f"http://127.0.0.1:{server.port}/in", "127.0.0.1")
    assert answer.error == "answered 302, a redirect, and redirects are not followed"
    assert len(server.hosts) == 1


def test_what_a_receiver_repeats_is_masked_and_short(server: Server) -> None:
    server.status, server.text = 400, f"bad: /in/very-secret {SECRET} " + "x" * 9000
    answer = send(f"http://127.0.0.1:{server.port}/in/very-secret", "127.0.0.1")
    assert (answer.error, answer.unsure) == ("answered 400 Bad Request", False)
    assert answer.text.startswith("bad: /*** *** xxx")
    assert len(answer.text) <= 2000


@pytest.mark.parametrize(("status", "pause_s"), [(429, 7.0), (503, 7.0), (500, None)])
def test_a_pause_is_taken_from_those_that_may_ask_for_one(server: Server, status: int, pause_s: float | None) -> None:
    server.status, server.headers = status, {"retry-after": "7"}
    assert send(f"http://127.0.0.1:{server.port}/in", "127.0.0.1").pause_s == pause_s


def test_nobody_listens() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        answer = send(f"http://127.0.0.1:{closed.getsockname()[1]}/in/very-secret", "127.0.0.1")
    assert answer.error is not None
    assert answer.error.startswith("ConnectError")
    assert not answer.unsure, "nothing was sent"
    assert "very-secret" not in answer.error
