"""Starting and talking to a simulated engine over real loopback."""

from __future__ import annotations

import http.client
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
NGRAM = '--speculative-config={"method":"ngram","num_speculative_tokens":5,"prompt_lookup_max":4}'


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def environment(folder: Path, **knobs: str) -> dict[str, str]:
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("EXPCTL_", "VLLM_", "CUDA_"))}
    return (
        plain | {"PYTHONPATH": str(ROOT), "EXPCTL_SIM_STATE_DIR": str(folder / "state")} | {f"EXPCTL_SIM_{k}": v for k, v in knobs.items()}
    )


def run(*argv: str, folder: Path, **knobs: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", *argv]
    return subprocess.run(command, env=environment(folder, **knobs), capture_output=True, text=True, timeout=30, check=False)


@dataclass
class Chunk:
    """One event of a stream and when it came."""

    at: float
    data: dict[str, Any]

    @property
    def choice(self) -> dict[str, Any]:
        choices = self.data.get("choices") or [{}]
        return dict(choices[0])

    @property
    def tokens(self) -> list[int]:
        return list(self.choice.get("token_ids", []))


@dataclass
class Stream:
    """A whole streamed answer."""

    sent_at: float
    chunks: list[Chunk] = field(default_factory=list)
    done: bool = False
    broken: bool = False

    @property
    def token_chunks(self) -> list[Chunk]:
        return [chunk for chunk in self.chunks if chunk.tokens]

    @property
    def tokens(self) -> list[int]:
        return [token for chunk in self.chunks for token in chunk.tokens]

    @property
    def usage(self) -> dict[str, Any]:
        return dict(self.chunks[-1].data.get("usage") or {}) if self.chunks else {}

    @property
    def finish(self) -> str | None:
        return next((reason for chunk in self.chunks if (reason := chunk.choice.get("finish_reason"))), None)

    def text(self, key: str) -> str:
        return "".join(chunk.choice.get("delta", {}).get(key) or "" for chunk in self.chunks)

    @property
    def tpot_s(self) -> float:
        shown = self.token_chunks
        return (shown[-1].at - shown[0].at) / (len(self.tokens) - 1)


class SimServer:
    """A simulated engine as a process of its own, in its own process group, its output read along the way."""

    def __init__(self, folder: Path, *flags: str, env: dict[str, str] | None = None, **knobs: str) -> None:
        self.port = free_port()
        settings = {"PROFILE": "fast", "LOAD_SECONDS": "0"} | knobs
        command = [sys.executable, "-P", "-m", "workers.sim", "serve", "/models/m", "--port", str(self.port), "--host=127.0.0.1", *flags]
        self.process = subprocess.Popen(
            command,
            env=environment(folder, **settings) | (env or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._parts: queue.Queue[bytes | None] = queue.Queue()
        self.output = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        while part := os.read(self.process.stdout.fileno(), 65536):
            self._parts.put(part)
        self._parts.put(None)

    def wait_for(self, text: str, timeout: float = 20.0) -> str:
        """Read on until the output holds `text`."""
        until = time.monotonic() + timeout
        while text not in self.output:
            part = self._parts.get(timeout=max(0.01, until - time.monotonic()))
            assert part is not None, f"{text!r} never came:\n{self.output}"
            self.output += part.decode()
        return self.output

    def ready(self) -> SimServer:
        self.wait_for("Application startup complete.")
        return self

    def wait(self, timeout: float = 20.0) -> int:
        """Its exit status; the output is then complete."""
        status = self.process.wait(timeout)
        self._reader.join(timeout)
        while (part := self._parts.get(timeout=timeout)) is not None:
            self.output += part.decode()
        return status

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # its group outlives it only where a deaf process stayed behind
        self.process.wait()
        self._reader.join(5)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def request(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def metric(self, name: str, **labels: str) -> float | None:
        """The sum of a metric's samples that carry these labels; None where it does not exist."""
        page = self.request("GET", "/metrics")[1]
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        values = [
            float(match[2])
            for match in re.finditer(rf"^{re.escape(name)}(\{{.*\}})? (\S+)$", page, re.MULTILINE)
            if all(w in (match[1] or "") for w in wanted)
        ]
        return sum(values) if values else None

    def stream(self, prompt: str = "hello there", max_tokens: int = 32, **extra: Any) -> Stream:
        body = {"model": "m", "messages": [{"role": "user", "content": prompt}], "max_tokens": max_tokens, "stream": True}
        body |= {"stream_options": {"include_usage": True}, "return_token_ids": True} | extra
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            result = Stream(time.monotonic())
            connection.request("POST", "/v1/chat/completions", json.dumps(body))
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            for at, data in _events(answer, result):
                if data == "[DONE]":
                    result.done = True
                else:
                    result.chunks.append(Chunk(at, json.loads(data)))
            return result
        finally:
            connection.close()


def _events(answer: http.client.HTTPResponse, result: Stream) -> Iterator[tuple[float, str]]:
    rest = b""
    try:
        while part := answer.read1():  # not readline(), which hides a broken end
            at = time.monotonic()
            *lines, rest = (rest + part).split(b"\n")
            yield from ((at, line[6:].decode()) for line in lines if line.startswith(b"data: "))
    except (http.client.IncompleteRead, ConnectionError):
        result.broken = True


def until(condition: Callable[[], bool], timeout: float = 10.0) -> None:
    """Wait for a condition."""
    tick = threading.Event()
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        tick.wait(0.02)
