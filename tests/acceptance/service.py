"""The embedded service as real processes, with the simulated engine where a test says `vllm`."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from expctl import specfiles
from expctl.client import Client
from service.domain.errors import ExpctlError
from service.settings import Settings
from workers.sim.launchers import write_launchers

MANY_KILLS = 2
"""After so many, `up` takes its time to start the next one."""
QUICK_BENCH = {"max_tokens": 16, "concurrency": [1, 4], "repeat": 1, "warmup": 1}


def free_port() -> int:
    """A port that stays free while its service is away: below those that the kernel gives to outgoing connections."""
    return next(port for port in iter(lambda: random.randrange(16_000, 32_000), None) if port_is_free(port))  # noqa: S311 - no secret


T = TypeVar("T")
_NUMBERS = itertools.count()


def wait_for(look: Callable[[], T], seconds: float = 60.0, every: float = 0.1) -> T:
    """The first true answer of `look`; a failure that names it otherwise. A look costs the service more than the test."""
    tick = threading.Event()
    until = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > until:
            pytest.fail(f"not true within {seconds} s: {look}")
        tick.wait(every)
    return found


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def steps(item: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The steps of an experiment by name."""
    return {step["name"]: step for step in item["steps"]}


@dataclass
class Service:
    """`expctl up` in a folder of its own. May be ended and started again."""

    folder: Path
    port: int = field(default_factory=free_port)
    engine_port: int = field(default_factory=free_port)
    environ: dict[str, str] = field(default_factory=dict)
    """Settings of this service besides its folder."""
    process: subprocess.Popen[bytes] | None = None
    kills: int = 0
    """How many of its processes were killed."""

    def environment(self) -> dict[str, str]:
        """What its processes are started with. They may keep their bytecode: it halves what a start costs."""
        own = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        return own | {"EXPCTL_DATA_DIR": str(self.data)} | self.environ

    @property
    def database_url(self) -> str:
        """The database as its processes see it."""
        return self.environ.get("EXPCTL_DATABASE_URL", "") or Settings(data_dir=self.data).resolved_database_url

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self) -> Service:
        argv = [sys.executable, "-m", "expctl", "up", "--port", str(self.port), "--data", str(self.data)]
        self.kills = 0
        told = self.folder / f"up-{next(_NUMBERS)}.log"
        with told.open("wb") as log:
            process = self.process = subprocess.Popen(
                [*argv, "--experiment-port", str(self.engine_port)], stdout=log, stderr=log, env=self.environment()
            )
        # Not until it answers, but until `up` says so: before that it takes a dead API for one that cannot start.
        wait_for(lambda: "expctl is up" in told.read_text() or process.poll() is not None, 120)
        assert process.poll() is None, told.read_text()
        return self

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        code = self.process.wait(60)
        self.process = None
        return code

    def end(self) -> None:
        """Whatever a test has left of it, and however long it takes."""
        process, self.process = self.process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pid in self.children().values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.client.__exit__(None, None, None)
        self.http.close()

    def kill(self, verb: str) -> int:
        """Kill one of its processes; gives its pid."""
        pid = self.children()[verb]
        os.kill(pid, signal.SIGKILL)
        self.kills += 1
        return pid

    def kill_all(self) -> None:
        """The whole service at once, as a crash of the user's session would; engines live on."""
        assert self.process is not None
        for pid in (self.process.pid, *self.children().values()):
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.process = None
        wait_for(lambda: not self.children())

    def children(self) -> dict[str, int]:
        """Verb -> pid of the processes of this service."""
        found: dict[int, tuple[str, int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    verb = (entry / "comm").read_text().strip().partition("expctl ")[2]
                    if verb and str(self.data).encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                        parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                        found[int(entry.name)] = (verb, int(parent))
                except OSError:
                    continue
        # What a worker starts looks like the worker itself until it has become another program.
        return {verb: pid for pid, (verb, parent) in found.items() if parent not in found}

    @cached_property
    def client(self) -> Client:
        """One for all looks: making one costs more than twenty of them."""
        return Client(self.url)

    @cached_property
    def http(self) -> httpx.Client:
        """The same, for answers that the client knows nothing of."""
        return httpx.Client(base_url=self.url, trust_env=False, timeout=10)

    def api(self, path: str) -> str:
        return self.http.get(path).text

    def host(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.api("/v1/hosts/local"))
        return found

    def settled(self) -> bool:
        """End what a test left open. False where this service is no longer fit for the next one."""
        if self.process is None or self.process.poll() is not None or self.kills > MANY_KILLS:
            return False
        try:
            self.client.pause("local", paused=False)
            for item in self.client.experiments(statuses=["held", "queued", "running"], limit=200):
                self.client.cancel(item["id"])
            wait_for(lambda: not self.client.experiments(statuses=["held", "queued", "running", "stopping"]), 20)
        except (ExpctlError, pytest.fail.Exception):
            return False
        return port_is_free(self.engine_port)

    def cli(self, *argv: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "expctl", "--server", self.url, *argv]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, input=stdin, env=self.environment())

    def engine(self, **knobs: str) -> Path:
        """A `vllm` that is simulated, with knobs such as LOAD_SECONDS."""
        folder = self.folder / f"sim-{abs(hash(tuple(knobs.items())))}"
        state = {"EXPCTL_SIM_STATE_DIR": str(folder), "EXPCTL_SIM_LOAD_SECONDS": "0.3", "EXPCTL_SIM_SEED": "1"}
        return write_launchers(folder, state | {f"EXPCTL_SIM_{key}": value for key, value in knobs.items()}).engine

    def file(self, name: str, *, bench: dict[str, Any] | None = None, engine: dict[str, Any] | None = None, **knobs: str) -> Path:
        """An experiment file for the simulated engine."""
        made: dict[str, Any] = {
            "kind": "vllm",
            "model": "/models/kimi",
            "served_model_name": "kimi",
            "executable": str(self.engine(**knobs)),
        }
        # Every file is a configuration of its own, or an earlier test's measurement would be offered for it.
        made["env"] = {"TEST_RUN": str(next(_NUMBERS))}
        spec = {"name": name, "engine": made | (engine or {}), "bench": QUICK_BENCH | (bench or {})}
        path = self.folder / f"{name.replace(' ', '-')}.yaml"
        path.write_text(json.dumps(spec))
        return path

    def submit(self, file: Path, *options: str) -> int:
        """Queue the experiment of a file. Without options no command is run for it: that costs more than everything else here."""
        if not options:
            [spec] = specfiles.read(str(file), [])
            return int(self.client.submit(spec.model_dump(mode="json", by_alias=True), again=False)["id"])
        done = self.cli("submit", str(file), *options)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    def show(self, one: int) -> dict[str, Any]:
        return self.client.experiment(one)

    def newest(self) -> list[dict[str, Any]]:
        """What there is."""
        return self.client.experiments(limit=200)

    def at_step(self, one: int, step: str) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            item = self.show(one)
            return item if item["step"] == step or item["status"] == "finished" else None

        return wait_for(look, every=0.03)  # some steps are short

    def ended(self, one: int, seconds: float = 120.0) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            item = self.show(one)
            return item if item["status"] == "finished" else None

        return wait_for(look, seconds, every=0.2)
