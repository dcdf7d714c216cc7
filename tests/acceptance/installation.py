"""expctl as it is deployed: a database, a broker, and api, steward and workers as processes of their own, here with simulated engines."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from expctl.hostclient import HostClient
from service.domain.access import Scope
from service.store import tokens
from service.store.database import Database
from tests.acceptance.service import QUICK_BENCH, free_port, wait_for
from workers.hosts.local import LocalHost
from workers.sim.launchers import write_launchers

EXPCTL = (sys.executable, "-m", "expctl")
API, STEWARD = "api", "steward"
_RUNS = itertools.count()


def worker_of(host: str) -> str:
    """The name of a host's worker among the processes."""
    return f"worker-{host}"


@dataclass
class Part:
    """One process of the installation. May be ended and started again; its log goes on."""

    argv: tuple[str, ...]
    environ: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start it; whether it is ready is another question."""
        assert not self.alive, f"{self.log.name} runs already"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.argv, env=self.environ, stdout=log, stderr=log)
        return self

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        """STOP freezes it, CONT lets it go on."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """As the OOM killer does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self, seconds: float = 30.0) -> float:
        """As systemd does. In how many seconds it was gone."""
        assert self.process is not None
        began = time.monotonic()
        self.process.terminate()
        self.process.wait(seconds)
        return time.monotonic() - began

    def said(self) -> str:
        """Its log."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""


@dataclass
class Installation:
    """Nothing of it runs until it is started. `end` removes whatever is left, engines too."""

    folder: Path
    database_url: str
    broker_url: str = ""
    environ: dict[str, str] = field(default_factory=dict)
    """Settings besides those."""
    port: int = field(default_factory=free_port)
    parts: dict[str, Part] = field(default_factory=dict)
    engine_ports: dict[str, int] = field(default_factory=dict)

    # ---- processes ----

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def environment(self, data: Path) -> dict[str, str]:
        """What a process is started with. It may keep its bytecode: that halves what a start costs."""
        own = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        places = {"EXPCTL_DATABASE_URL": self.database_url, "EXPCTL_BROKER_URL": self.broker_url, "EXPCTL_DATA_DIR": str(data)}
        return own | places | {"EXPCTL_SERVER": self.url} | self.environ

    @cached_property
    def token(self) -> str:
        """An admin's, made as the first one of an installation is: on its database."""
        database = Database(self.database_url)
        with database.write() as session:
            _, text = tokens.create(session, "tests", "tests", [Scope.ADMIN], "tests")
        database.close()
        return text

    def add(self, name: str, *verb: str, data: Path | None = None, **environ: str) -> Part:
        """A process that runs a verb; not started yet. `name` is also that of its log."""
        folder = data or self.folder / "data"
        folder.mkdir(parents=True, exist_ok=True)
        self.parts[name] = Part((*EXPCTL, *verb), self.environment(folder) | environ, self.folder / f"{name}.log")
        return self.parts[name]

    def start_api(self) -> Part:
        """Start the API and wait until it is ready."""
        part = self.parts.get(API) or self.add(API, "api", "--port", str(self.port))
        part.start()
        wait_for(lambda: self.client.ready() or not part.alive, 60)
        assert part.alive, part.said()
        return part

    def start_steward(self, name: str = STEWARD) -> Part:
        """Start a steward; several may stand by, under names of their own."""
        return (self.parts.get(name) or self.add(name, "steward")).start()

    def start_worker(self, host: str, name: str = "") -> Part:
        """Start the worker of a host; another one besides it needs a name of its own."""
        name = name or worker_of(host)
        return (self.parts.get(name) or self.add(name, "worker", "--host", host, data=self.data_of(host))).start()

    def data_of(self, host: str) -> Path:
        """The data folder of a host's workers: there its engines are found again."""
        return self.folder / "data" / host

    def said(self) -> str:
        """Every log, for the message of a failure."""
        return "\n".join(f"--- {name}\n{part.said()[-3000:]}" for name, part in self.parts.items())

    def end(self) -> None:
        """Whatever a test has left of it."""
        for part in self.parts.values():
            if part.alive:
                part.kill()
        for host in self.engine_ports:
            local = LocalHost(host, self.data_of(host))
            for unit in local.units():
                with suppress(OSError):
                    local.stop_unit(unit.name, grace_s=1)
        self.client.__exit__(None, None, None)

    # ---- asking ----

    @cached_property
    def client(self) -> HostClient:
        return HostClient(self.url, token=self.token)

    def cli(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Any verb, as a person would use it."""
        environ = self.environment(self.folder / "data") | {"EXPCTL_TOKEN": self.token}
        return subprocess.run([*EXPCTL, *argv], capture_output=True, text=True, check=False, timeout=60, env=environ)

    def add_host(self, name: str, **settings: Any) -> None:
        """A host on this machine, whose engines are plain processes."""
        self.engine_ports[name] = free_port()
        self.client.save_host({"name": name, "experiment_port": self.engine_ports[name], **settings})

    def host(self, name: str) -> dict[str, Any]:
        return self.client.host(name)

    def spec(self, host: str, name: str = "x", bench: dict[str, Any] | None = None, **knobs: str) -> dict[str, Any]:
        """An experiment with the simulated engine, with knobs such as LOAD_SECONDS. Each is a configuration of its own."""
        folder = self.folder / f"sim-{abs(hash(tuple(knobs.items())))}"
        settings = {"STATE_DIR": str(folder), "LOAD_SECONDS": "0.2", "SEED": "1"} | knobs
        engine = write_launchers(folder, {f"EXPCTL_SIM_{key}": value for key, value in settings.items()}).engine
        made = {"kind": "vllm", "model": "/models/kimi", "served_model_name": "kimi", "executable": str(engine)}
        return {
            "name": name,
            "host": host,
            "engine": made | {"env": {"TEST_RUN": str(next(_RUNS))}},
            "bench": QUICK_BENCH | (bench or {}),
        }

    def submit(self, host: str, name: str = "x", bench: dict[str, Any] | None = None, **knobs: str) -> int:
        """Queue one; its id."""
        return int(self.client.submit(self.spec(host, name, bench, **knobs))["id"])

    def show(self, one: int) -> dict[str, Any]:
        return self.client.experiment(one)

    def until(self, one: int, *where: str, seconds: float = 60.0) -> dict[str, Any]:
        """The experiment once its step or its status is one of these."""

        def look() -> dict[str, Any] | None:
            item = self.show(one)
            return item if {item["step"], item["status"]} & {*where, "finished"} else None

        try:
            item = wait_for(look, seconds, every=0.03)
        except BaseException as error:
            raise AssertionError(f"experiment {one} is not {where}: {self.show(one)}\n{self.said()}") from error
        assert {item["step"], item["status"]} & set(where), (json.dumps(item), self.said())
        return item

    def succeeded(self, one: int, seconds: float = 90.0) -> dict[str, Any]:
        """The experiment once it has finished, which must be well."""
        item = self.until(one, "finished", seconds=seconds)
        assert item["outcome"] == "succeeded", (item["reason"], item["detail"], self.said())
        return item
