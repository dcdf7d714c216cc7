"""The embedded service as one object: migrated database, registered hosts, and the children that run it."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from expctl.child import STOPPING, Child, Leash, fork
from expctl.client import Client
from expctl.serve import host_names, preload, register_hosts, run_api, run_steward, run_worker, upgrade_database
from service.domain.errors import Conflict, Unavailable
from service.settings import Settings

READY_S = 60.0
GRACE_S = 10.0
TEND_S = 0.2
ROSTER_S = 2.0
"""How soon a host that was added gets its worker."""
LOOPBACK = "127.0.0.1"


class Asked:
    """Whether TERM or INT has come. Without a thread, since `up` forks, and without a lock, which a handler could find held."""

    def __init__(self) -> None:
        self._come = False
        for number in STOPPING:
            signal.signal(number, self._note)

    def _note(self, *_: object) -> None:
        self._come = True

    def wait(self, seconds: float) -> bool:
        """True once it has; False after so long."""
        if not self._come:
            time.sleep(seconds)
        return self._come


@dataclass
class Embedded:
    """`with Embedded(settings, port, hosts) as service:` runs API, a steward, and a worker for each host."""

    settings: Settings
    port: int
    hosts: dict[str, dict[str, Any]]
    """Name -> settings of each host to register."""
    only_these: bool = True
    """No worker for any other host, whoever adds it."""
    _children: list[Child] = field(default_factory=list)
    _workers: dict[str, Child] = field(default_factory=dict)
    _roster_due: float = 0.0
    _leash: Leash | None = None
    _lock: IO[str] | None = None

    @property
    def url(self) -> str:
        """Where the API answers."""
        return f"http://{LOOPBACK}:{self.port}"

    def __enter__(self) -> Self:
        self.settings.data_dir.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        self._port_must_be_free()
        upgrade_database(self.settings)
        register_hosts(self.settings, self.hosts)
        preload(self.settings)
        self._leash = Leash()
        self._children = [
            self._child("api", "api", lambda: run_api(self.settings, LOOPBACK, self.port, embedded=True)),
            self._child("steward", "steward", lambda: run_steward(self.settings)),
        ]
        try:
            for child in self._children:
                child.start()
            self._man(self.hosts)
            self._call_the_roster()
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
                probe.bind((LOOPBACK, self.port))
            except OSError as error:
                if self._lock is not None:
                    self._lock.close()
                raise Conflict(f"port {self.port} cannot be used", error.strerror or str(error), "choose another with --port") from None

    def _child(self, verb: str, name: str, run: Callable[[], None]) -> Child:
        logs = self.settings.data_dir / "logs"
        logs.mkdir(exist_ok=True)
        return Child(name, lambda: fork(verb, run, logs / f"{name}.log", self._settle_child))

    def _settle_child(self) -> None:
        """In a child: the lock and the leash's other end are those of `up`, and must end with it."""
        if self._lock is not None:
            self._lock.close()
        if self._leash is not None:
            self._leash.follow()

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + READY_S
        with Client(self.url, signed_in=False) as client:
            while not client.ready():
                api = self._children[0].process
                if time.monotonic() > deadline or (api is not None and not api.is_alive()):
                    why = _tail(self.settings.data_dir / "logs" / "api.log")
                    raise Unavailable(f"the API did not start on port {self.port}", why, "is the port taken? try --port")
                time.sleep(0.05)

    def _man(self, names: Iterable[str]) -> None:
        """A worker for each of these hosts that has none."""
        for name in names:
            if name not in self._workers:
                self._workers[name] = self._child("worker", f"worker-{name}", partial(run_worker, self.settings, name))
                self._workers[name].start()

    def _call_the_roster(self) -> None:
        """Give every registered host its worker. Between two looks there is no connection, so that forking is safe."""
        if self.only_these or time.monotonic() < self._roster_due:
            return
        self._man(host_names(self.settings) or ())
        self._roster_due = time.monotonic() + ROSTER_S

    def supervise(self, stop: Asked) -> None:
        """Start again whatever ends by itself, and a worker for whatever host is added, until `stop`."""
        while not stop.wait(TEND_S):
            for child in (*self._children, *self._workers.values()):
                child.tend()
            self._call_the_roster()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        living = [child.process for child in (*self._children, *self._workers.values()) if child.process is not None]
        for process in living:
            process.terminate()
        deadline = time.monotonic() + GRACE_S
        for process in living:
            process.join(max(0.1, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
        self._children, self._workers = [], {}
        if self._leash is not None:
            self._leash.close()
        if self._lock is not None:
            self._lock.close()


def _tail(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1] if lines else "it logged nothing"
