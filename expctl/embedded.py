"""The embedded service as one object: migrated database, registered hosts, and the children that run it."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from expctl.client import Client
from expctl.serve import register_hosts, upgrade_database
from service.domain.errors import Conflict, Unavailable
from service.settings import Settings

READY_S = 30.0
GRACE_S = 10.0
BACKOFF_S = (0.5, 1.0, 2.0, 5.0, 15.0)


@dataclass
class _Child:
    """One child process, started again when it ends by itself."""

    name: str
    argv: list[str]
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    due: float = 0.0


@dataclass
class Embedded:
    """`with Embedded(settings, port, hosts) as service:` runs API, a worker a host, and a steward."""

    settings: Settings
    port: int
    hosts: dict[str, dict[str, Any]]
    """Name -> settings of each host to register."""
    _children: list[_Child] = field(default_factory=list)
    _lock: IO[str] | None = None

    @property
    def url(self) -> str:
        """Where the API answers."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.settings.data_dir.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        self._port_must_be_free()
        upgrade_database(self.settings)
        register_hosts(self.settings, self.hosts)
        self._children = [
            _Child("api", ["api", "--port", str(self.port)]),
            _Child("steward", ["steward"]),
            *(_Child(f"worker-{name}", ["worker", "--host", name]) for name in self.hosts),
        ]
        try:
            for child in self._children:
                self._start(child)
            self._wait_ready()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _take_lock(self) -> None:
        """Two services on one data folder would fight over its engines."""
        path = self.settings.data_dir / "up.lock"
        self._lock = path.open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.seek(0)
            holder = self._lock.read().strip() or "unknown"
            self._lock.close()
            todo = "use that one, or give another folder to --data"
            raise Conflict(f"another `expctl up` uses {self.settings.data_dir}", f"it has pid {holder}", todo) from None
        self._lock.truncate(0)
        self._lock.write(str(os.getpid()))
        self._lock.flush()

    def _port_must_be_free(self) -> None:
        """Else the stranger's answer would be taken for ours."""
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", self.port))
            except OSError as error:
                if self._lock is not None:
                    self._lock.close()
                raise Conflict(f"port {self.port} cannot be used", error.strerror or str(error), "choose another with --port") from None

    def _start(self, child: _Child) -> None:
        logs = self.settings.data_dir / "logs"
        logs.mkdir(exist_ok=True)
        environ = os.environ | {"EXPCTL_CHILD": "1", "EXPCTL_DATA_DIR": str(self.settings.data_dir), "PYTHONUNBUFFERED": "1"}
        if self.settings.database_url:
            environ["EXPCTL_DATABASE_URL"] = self.settings.database_url
        with (logs / f"{child.name}.log").open("ab") as log:
            # A session of its own, so that Ctrl-C in the terminal reaches `up` alone, which ends its children in order.
            child.process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-m", "expctl", *child.argv],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environ,
                start_new_session=True,
            )
        child.starts += 1

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + READY_S
        with Client(self.url) as client:
            while not client.ready():
                api = self._children[0].process
                if time.monotonic() > deadline or (api is not None and api.poll() is not None):
                    why = _tail(self.settings.data_dir / "logs" / "api.log")
                    raise Unavailable(f"the API did not start on port {self.port}", why, "is the port taken? try --port")
                time.sleep(0.05)

    def supervise(self, stop: threading.Event) -> None:
        """Start again whatever ends by itself, until `stop` is set."""
        while not stop.wait(0.2):
            for child in self._children:
                if child.process is not None and child.process.poll() is not None:
                    _close(child.process)
                    child.process = None
                    child.due = time.monotonic() + BACKOFF_S[min(child.starts, len(BACKOFF_S)) - 1]
                elif child.process is None and time.monotonic() >= child.due:
                    self._start(child)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        living = [child.process for child in self._children if child.process is not None]
        for process in living:
            process.terminate()
        deadline = time.monotonic() + GRACE_S
        for process in living:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            _close(process)
        self._children = []
        if self._lock is not None:
            self._lock.close()


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()


def _tail(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1] if lines else "it logged nothing"
