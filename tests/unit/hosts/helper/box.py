"""A made-up host in a folder: its /etc, /run, /proc, a systemctl and a journalctl; and the helper, asked as a program or as modules."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.unit.hosts.helper import fake_journalctl, fake_systemctl
from workers.hosts.helper import main as helper
from workers.hosts.helper.assemble import assemble
from workers.hosts.helper.config import read_config
from workers.hosts.helper.context import Context, context_for
from workers.hosts.helper.places import Caller, Clock, Places
from workers.hosts.helper.processes import Processes
from workers.hosts.helper.programs import Ran
from workers.hosts.helper.refusals import Misuse, Refused
from workers.hosts.helper.systemd import Systemd

SERVICE = "11111111-2222-3333-4444-555555555555"
OTHER_SERVICE = "99999999-2222-3333-4444-555555555555"
CLAIM = {"service": SERVICE, "owner": "worker@here", "fence": 7}
PARKED, UNIT = "vllm-kimi.service", "expctl-12-ngram.service"
NOBODY = "nobody"
PRODUCTION = """[Unit]
Description=Kimi
[Service]
Type=simple
User=nobody
ExecStart=/opt/venv/bin/vllm serve /models/kimi --port 8000
Restart=always
[Install]
WantedBy=multi-user.target
"""


class FakeClock(Clock):
    """Time that passes only when somebody sleeps or a test says so."""

    def __init__(self, places: Places) -> None:
        super().__init__(places)
        self.boot, self.now, self.up = "boot-1", 1_800_000_000.0, 5000.0

    def wall(self) -> float:
        return self.now

    def since_boot(self) -> float:
        return self.up

    def monotonic(self) -> float:
        return self.up

    def sleep(self, seconds: float) -> None:
        self.pass_(seconds)
        Clock.sleep(self, min(seconds, 0.003))  # real processes need real time to end

    def boot_id(self) -> str:
        return self.boot

    def pass_(self, seconds: float) -> None:
        self.now += seconds
        self.up += seconds

    def reboot(self, off_for_s: float) -> None:
        self.boot, self.now, self.up = "boot-2", self.now + off_for_s, 20.0


class Box:
    """The folder. `owner` is who the helper runs as."""

    def __init__(self, root: Path, interpreter: str, owner: str | None) -> None:
        self.root, self._interpreter, self._owner = root, interpreter, owner
        for folder in ("etc/systemd/system", "run/systemd/system", "usr/bin", "fake", "proc/net", "proc/sys/kernel/random", "var/lib"):
            (root / folder).mkdir(parents=True)
        (root / "proc/sys/kernel/random/boot_id").write_text("boot-1\n")
        for name, module in (("systemctl", fake_systemctl), ("journalctl", fake_journalctl)):
            program = root / "usr/bin" / name
            program.write_text(f"#!{interpreter} -IS\n{Path(str(module.__file__)).read_text()}")
            program.chmod(0o755)
        self.helper = root / "expctl-host"
        self.helper.write_text(_assembled())
        self.configure()
        self.source(PARKED, PRODUCTION)

    def own(self, path: Path) -> None:
        if self._owner is not None:
            shutil.chown(path, self._owner)

    def write(self, path: str, text: str) -> Path:
        """A file of the box, owned by whom the helper runs as."""
        found = self.root / path
        for folder in reversed([*found.parents][: len(Path(path).parts) - 1]):
            folder.mkdir(exist_ok=True)
            self.own(folder)
        found.write_text(text)
        found.chmod(0o644)
        self.own(found)
        return found

    def configure(self, **changed: Any) -> None:
        value = {"parked": [PARKED], "fork": [], "run_as": [NOBODY], "allow_root": False, **changed}
        self.write("etc/expctl-host.json", json.dumps(value))

    def source(self, unit: str, text: str) -> None:
        self.write(f"etc/systemd/system/{unit}", text)

    def behave(self, unit: str, **how: Any) -> None:
        self.write("fake/behaviour.json", json.dumps({**self._load("behaviour.json"), unit: how}))

    def units(self) -> dict[str, dict[str, str]]:
        """The units as systemctl last had them."""
        return self._load("units.json")

    def set_unit(self, unit: str, **props: str) -> None:
        units = self.units()
        units[unit] = {**fake_systemctl.NOTHING, **units.get(unit, {}), **props}
        self.write("fake/units.json", json.dumps(units))

    def calls(self, verb: str) -> list[list[str]]:
        """What systemctl was called with after its verb."""
        path = self.root / "fake/calls"
        words = [json.loads(line)[2:] for line in path.read_text().splitlines()] if path.exists() else []
        return [[one for one in rest if one != "--"] for found, *rest in words if found == verb]

    def systemctl(self, *words: str) -> None:
        """What somebody types on the host."""
        env = {"LC_ALL": "C"}
        program = [str(self.root / "usr/bin/systemctl"), "--no-pager", "--no-ask-password", *words]
        subprocess.run(program, check=True, env=env, **self._as_owner())

    def ask(self, verb: str, request: Any = None, env: Mapping[str, str] | None = None) -> tuple[int, dict[str, Any]]:
        """Run the assembled file; exit status and answer."""
        given = request if isinstance(request, bytes) else json.dumps(request or {}).encode()
        ran = subprocess.run(
            [self._interpreter, "-I", str(self.helper), verb],
            input=given,
            capture_output=True,
            check=False,
            timeout=60,
            env={"EXPCTL_HOST_ROOT": str(self.root), "SUDO_UID": "12345", **(env or {})},
            **self._as_owner(),
        )
        assert ran.stderr == b"", ran.stderr.decode()
        return ran.returncode, json.loads(ran.stdout)

    def good(self, verb: str, request: Any = None) -> dict[str, Any]:
        status, answer = self.ask(verb, request)
        assert (status, answer.pop("ok")) == (0, True), answer
        return answer

    def bad(self, verb: str, request: Any = None) -> dict[str, Any]:
        status, answer = self.ask(verb, request)
        assert (status, answer.pop("ok")) == (1, False), answer
        return answer

    def _as_owner(self) -> dict[str, Any]:
        return {} if self._owner is None else {"user": self._owner, "group": pwd.getpwnam(self._owner).pw_gid, "extra_groups": []}

    def _load(self, name: str) -> dict[str, Any]:
        path = self.root / "fake" / name
        return json.loads(path.read_text()) if path.exists() else {}

    def give_all(self) -> None:
        for path in [self.root, *self.root.rglob("*")]:
            self.own(path)

    def end(self) -> None:
        """Leave no process behind."""
        for entry in (self.root / "proc").iterdir():
            if entry.name.isdigit() and (entry / "stat").is_symlink():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(entry.name), signal.SIGKILL)
        while fake_systemctl.SPAWNED:
            fake_systemctl.SPAWNED.pop().wait()

    def extra_process(self, unit: str, title: str, *, stubborn: bool = False, immortal: bool = False) -> tuple[int, int]:
        """One more process in a unit's cgroup; (pid, start time). `immortal`: it is only in /proc, so no signal ends it."""
        if immortal:
            pid = 4_190_000
            fake_systemctl.ROOT = self.root
            self.write(f"proc/{pid}/cgroup", f"0::/system.slice/{unit}\n")
            self.write(f"proc/{pid}/cmdline", title + "\0")
            self.write(f"proc/{pid}/stat", f"{pid} (engine) D 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0\n")
            self.write(f"proc/{pid}/status", f"Name:\tengine\nUid:\t{' '.join([str(self.uid)] * 4)}\n")
            return pid, 777
        program = (
            ["/bin/sh", "-c", "trap '' TERM; echo ready; exec sleep 1000"] if stubborn else ["/bin/sh", "-c", "echo ready; exec sleep 1000"]
        )
        process = subprocess.Popen(program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, **self._as_owner())
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.stdout.close()
        fake_systemctl.SPAWNED.append(process)
        fake_systemctl.ROOT = self.root
        fake_systemctl.show_process(process.pid, unit, [title])
        found = Processes(Path("/proc")).read(process.pid)
        assert found is not None
        return process.pid, found.start_ticks

    @property
    def uid(self) -> int:
        """Who the helper and the units' processes run as."""
        return os.geteuid() if self._owner is None else pwd.getpwnam(self._owner).pw_uid


class FakeSystemd(Systemd):
    """The same systemctl without a process for each call, which is what a test waits for."""

    def __init__(self, places: Places, clock: Clock) -> None:
        super().__init__(places)
        self._clock = clock

    def try_to(self, *words: str, deadline_s: float = 0.0) -> Ran:
        del deadline_s  # nothing here takes long
        printed, said = io.StringIO(), ""
        fake_systemctl.ROOT, fake_systemctl.monotonic = Path(self._places.root), self._clock.monotonic
        with contextlib.redirect_stdout(printed):
            try:
                fake_systemctl.main(["--no-pager", "--no-ask-password", *words])
            except SystemExit as end:
                said = str(end)
        return Ran(1 if said else 0, printed.getvalue(), said)


class Inside:
    """The helper's modules, asked in this process, with a clock of the test's own."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.places = Places(str(box.root))
        self.clock = FakeClock(self.places)
        self.caller = Caller(12345, "expctl", root=False)

    def context(self) -> Context:
        made = context_for(self.places, self.caller, read_config(self.places.config), self.clock)
        return dataclasses.replace(made, systemd=FakeSystemd(self.places, self.clock))

    def good(self, verb: str, request: dict[str, Any] | None = None) -> dict[str, Any]:
        return helper.answer(verb, request or {}, self.context())

    def ask(self, verb: str, request: dict[str, Any] | None = None) -> dict[str, Any]:
        """The answer, or the refusal as a table."""
        try:
            return self.good(verb, request)
        except Refused as error:
            return {"reason": error.reason, "message": str(error), **error.details}
        except Misuse as error:
            return {"reason": "misuse", "message": str(error)}

    def bad(self, verb: str, request: dict[str, Any] | None = None) -> dict[str, Any]:
        answer = self.ask(verb, request)
        assert "reason" in answer, answer
        return answer


@functools.cache
def _assembled() -> str:
    return assemble()


@functools.cache
def usable_interpreter(owner: str | None) -> str | None:
    """A Python that whoever the helper runs as may execute; not always the one of these tests."""
    kwargs: dict[str, Any] = {} if owner is None else {"user": owner, "extra_groups": []}
    for path in (sys.executable, "/usr/local/bin/python3", "/usr/bin/python3"):
        try:
            if subprocess.run([path, "-I", "-c", ""], check=False, capture_output=True, cwd="/", **kwargs).returncode == 0:
                return path
        except OSError:
            continue
    return None
