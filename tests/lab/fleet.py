"""The product on this side of the cable: `expctl up` and a worker of the lab's host, as real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from expctl.client import Client
from service.store import events
from service.store.database import Database
from tests.acceptance.service import Service
from tests.lab.host import LabHost, wait_for

PRODUCTION = "vllm-prod.service"
HELPER = "/usr/local/sbin/expctl-host"
LEASE_S = "4"
QUICK = {"max_tokens": 16, "concurrency": [1, 4], "repeat": 1, "warmup": 1}


def window(hours_from_now: float, hours: float = 2.0) -> str:
    """A window that opens so many hours from now, in UTC."""
    start = datetime.now(UTC) + timedelta(hours=hours_from_now)
    return f"{start:%H:%M}-{start + timedelta(hours=hours):%H:%M}"


OPEN, SHUT = window(-1.0), window(6.0)


def host_options(host: LabHost, user: str, opening: str) -> list[str]:
    """Of `host add`, with short times."""
    times = ["--close-after", "1s", "--dead-man", "60s", "--window", opening]
    address = ["--engine-address", f"http://{host.address}", "--run-as", "vllm", "--executable", "vllm=/opt/vllm/bin/vllm"]
    return ["--ssh", f"{user}@{host.name}", "--park", PRODUCTION, *times, *address]


def helper_onto(host: LabHost, answer: dict[str, Any], user: str) -> None:
    """What an admin does with the answer of `host install`."""
    host.write(HELPER, answer["text"], mode=0o755)
    host.write(answer["config_path"], answer["config_text"])
    if user != "root":
        host.sudoers(answer["sudoers"])


@dataclass
class Fleet:
    """One service, one host, its worker."""

    service: Service
    host: LabHost
    user: str = "root"
    worker: subprocess.Popen[bytes] | None = None
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(10_000)))

    # ---- the host ----

    def add_host(self, *more: str, name: str = "", shut: bool = False) -> None:
        """`host add`, with short times."""
        options = host_options(self.host, self.user, SHUT if shut else OPEN)
        self.good("host", "add", name or self.host.name, *options, *more)

    def install_helper(self) -> None:
        """As an admin would, from what `host install` prints."""
        helper_onto(self.host, json.loads(self.good("host", "install", self.host.name, "--json"))["answer"], self.user)

    # ---- processes ----

    def start_worker(self, program: str = "expctl") -> None:
        """`expctl worker --host`."""
        argv = [sys.executable, "-m", program, "worker", "--host", self.host.name]
        with (self.service.folder / "worker.log").open("ab") as log:
            self.worker = subprocess.Popen(argv, stdout=log, stderr=log, env=self.service.environment())

    def kill_worker(self) -> None:
        """As the OOM killer does."""
        assert self.worker is not None
        self.worker.kill()
        self.worker.wait()

    def stop_worker(self) -> int:
        """As systemd does."""
        assert self.worker is not None
        self.worker.terminate()
        return self.worker.wait(60)

    @contextmanager
    def frozen_worker(self) -> Iterator[None]:
        """It lives, and does nothing."""
        assert self.worker is not None
        os.kill(self.worker.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.worker.pid, signal.SIGCONT)

    def end(self) -> None:
        """Whatever is left of the product."""
        if self.worker is not None and self.worker.poll() is None:
            self.kill_worker()
        if self.service.process is not None:
            self.service.kill_all()
        self.service.end()

    def worker_log(self) -> str:
        """What the workers have printed."""
        return (self.service.folder / "worker.log").read_text(errors="replace")

    # ---- asking ----

    def cli(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Any verb."""
        return self.service.cli(*argv)

    def good(self, *argv: str) -> str:
        """A verb that has to succeed; what it prints."""
        done = self.cli(*argv)
        assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}\n{self.worker_log() if self.worker else ''}"
        return done.stdout

    def submit(self, name: str, *, fork: bool = False, engine: dict[str, Any] | None = None, now: bool = False, **more: Any) -> int:
        """An experiment with the simulated engine: a fork of production, or a unit of its own."""
        own = {"from_unit": PRODUCTION} if fork else {"model": "/srv/models/kimi", "served_model_name": "kimi"}
        env = {"TEST_RUN": str(next(self._numbers))}
        made = {"kind": "vllm", "env": env, **own, **(engine or {})}
        spec = {"name": name, "host": self.host.name, "engine": made, "bench": QUICK, **more}
        path = self.service.folder / f"{re.sub('[^a-z0-9]+', '-', name)}.yaml"
        path.write_text(json.dumps(spec))
        return int(self.good("submit", str(path), *(["--now"] if now else [])))

    def show(self, one: int) -> dict[str, Any]:
        """One experiment."""
        with Client(self.service.url) as client:
            return client.experiment(one)

    def host_now(self) -> dict[str, Any]:
        """`GET /v1/hosts/NAME`."""
        found: dict[str, Any] = json.loads(self.service.api(f"/v1/hosts/{self.host.name}"))
        return found

    def ended(self, one: int, seconds: float = 90.0) -> dict[str, Any]:
        """The experiment once it has finished."""

        def look() -> dict[str, Any] | None:
            item = self.show(one)
            return item if item["status"] == "finished" else None

        try:
            return wait_for(look, seconds, f"experiment {one} ends")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.show(one)}\n{self.worker_log()[-4000:]}") from error

    def at_step(self, one: int, step: str, seconds: float = 60.0) -> dict[str, Any]:
        """The experiment once it is at that step."""

        def look() -> dict[str, Any] | None:
            item = self.show(one)
            return item if item["step"] == step or item["status"] == "finished" else None

        found = wait_for(look, seconds, f"experiment {one} is at {step}")
        assert found["step"] == step, f"{found}\n{self.worker_log()[-4000:]}"
        return found

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """Every event, or those of these kinds, in order."""
        database = Database(f"sqlite:///{self.service.data / 'expctl.db'}")
        with database.read() as session:
            found = [event.model_dump(mode="json") for event in events.since(session, limit=5000)]
        database.close()
        return [event for event in found if not kinds or event["type"] in kinds]

    def production_back(self, seconds: float = 60.0) -> None:
        """Until production serves and the shift is closed."""
        try:
            wait_for(lambda: self.host_now()["shift"] is None and self.host.is_serving(), seconds, "production is back")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.host_now()}\n{self.worker_log()[-6000:]}") from error


def begin(folder: Path, host: LabHost, user: str = "root", *host_options: str) -> Fleet:
    """Everything up to the first submission."""
    own = {"EXPCTL_LEASE_S": LEASE_S, "EXPCTL_ONLY_LOCAL": "1"}  # the host's worker is started, killed and frozen here
    made = Fleet(Service(folder, environ=host.environment | own), host, user)
    try:
        made.service.start()
        made.add_host(*host_options)
        made.start_worker()
        made.install_helper()
    except BaseException:
        made.end()
        raise
    return made
