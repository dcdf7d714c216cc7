"""A host's power: the container and its end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.lab.host.cable import Cable
from tests.lab.host.disk import Disk
from tests.lab.host.slot import Slot
from tests.lab.host.waiting import wait_for

# vLLM's CPU build places its memory by these; a container's usual filter refuses them.
SYSCALLS = "set_mempolicy get_mempolicy mbind move_pages migrate_pages"

# A container that reboots ends with 133, and who started it is to start it again. The cgroup is for the container alone.
RUN = """\
group=$1; shift
while :; do
    status=0
    sh -c 'echo $$ >"$0" && exec "$@"' "$group" "$@" || status=$?
    [ $status = 133 ] || exit $status
done
"""


class BootFailed(Exception):
    """The container did not come up; the text has the end of its console."""


@dataclass
class Power:
    """Runs the container, or not."""

    slot: Slot
    disk: Disk
    cable: Cable
    hostname: str
    binds: Sequence[tuple[Path, str]] = ()
    """Folders of this machine, and where the host sees them, read-only."""
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    _init: int | None = None

    @property
    def on(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.poll() is None

    @property
    def init(self) -> int | None:
        """The host's process 1, as it is numbered here: another one once the host has rebooted by itself."""
        if not self.on:
            return None
        if self._init is None or not psutil.pid_exists(self._init):
            self._init = self._find_init()
            if self._init is not None:
                self.cable.apply()
        return self._init

    def wait_init(self) -> int | None:
        """The same, after a moment where it is just booting; None only where it is off."""
        wait_for(lambda: self.init or not self.on, 20, lambda: f"{self.hostname} has a process 1\n{self.tail()}", every=0.005)
        return self.init

    @property
    def console(self) -> Path:
        """What it has printed since it was made."""
        return self.slot.folder / "console"

    def switch_on(self) -> None:
        """Start it, up to where it has a process 1 and its end of the cable. BootFailed otherwise, and then nothing runs."""
        if self.on:
            raise BootFailed(f"{self.hostname} is on already")
        self.slot.group.mkdir(exist_ok=True)
        with self.console.open("ab") as out:
            self.process = subprocess.Popen(
                self.disk.enclosed(["sh", "-c", RUN, "sh", str(self.slot.group / "cgroup.procs"), *self._container()]),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=os.environ | {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
                start_new_session=True,  # a Ctrl-C is pytest's business, which then ends us in order
            )
        self.slot.note(self.process.pid)
        try:
            found = self.wait_init()
        except BaseException:
            self.cut()
            raise
        if found is None:
            self.cut()
            raise BootFailed(f"{self.hostname} did not start:\n{self.tail()}")

    def cut(self) -> None:
        """A power cut: silence on the wire, then every process is gone at once. The kernel's end of TCP must not say goodbye."""
        if self.cable.exists():
            subprocess.run(["ip", "link", "set", self.cable.end, "down"], capture_output=True, check=False)
        if self.process is not None:
            init = self.init
            if init is not None:
                with suppress(ProcessLookupError):
                    os.kill(init, signal.SIGKILL)
            try:
                self.process.wait(10 if init is not None else 0)
            except subprocess.TimeoutExpired:
                self._kill_all(self.process)
        self.process = None
        self._init = None
        wait_for(lambda: not self.cable.exists(), 10, f"{self.cable.end} is gone")

    def switch_off(self, seconds: float = 30.0) -> None:
        """As its administrator would; a power cut where that takes too long."""
        if self.process is not None and self.init is not None:
            os.kill(self.init, signal.SIGRTMIN + 4)  # what systemd takes for "power off"
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
        self.cut()

    def restart(self, seconds: float = 30.0) -> None:
        """A reboot from inside: the container ends and begins, and what runs it goes on."""
        before = self.init
        if before is None:
            raise BootFailed(f"{self.hostname} is off")
        os.kill(before, signal.SIGRTMIN + 5)  # what systemd takes for "reboot"
        wait_for(lambda: self.init not in {None, before} or not self.on, seconds, lambda: f"{self.hostname} is back\n{self.tail()}")

    def tail(self) -> str:
        """The end of the console."""
        return "\n".join(self.console.read_text(errors="replace").splitlines()[-15:])

    @staticmethod
    def _kill_all(process: subprocess.Popen[bytes]) -> None:
        """Of a container that came only half up."""
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.kill()
        process.kill()
        process.wait()

    def _container(self) -> list[str]:
        argv = ["systemd-nspawn", "--quiet", "-D", str(self.disk.root), "--boot", f"--machine={self.slot.machine}"]
        argv += [f"--hostname={self.hostname}", "--register=no", "--keep-unit", "--resolv-conf=off", "--timezone=off", "--link-journal=no"]
        argv += [f"--network-bridge={self.slot.bridge}", f"--system-call-filter={SYSCALLS}", "--rlimit=RLIMIT_NOFILE=65536"]
        argv += [f"--bind-ro={here}:{there}" for here, there in self.binds]
        return [*argv, "--console=read-only"]

    def _find_init(self) -> int | None:
        if self.process is None:
            return None
        with suppress(psutil.NoSuchProcess, OSError):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                numbers = re.search(r"^NSpid:\s+(.+)$", Path(f"/proc/{child.pid}/status").read_text(), re.MULTILINE)
                is_init = numbers is not None and numbers[1].split()[1:] == ["1"]
                if is_init and self.cable.exists() and Path(f"/proc/{child.pid}/exe").readlink().name == "systemd":
                    return child.pid
        return None
