"""A place for one host on this machine: a number that no other process uses, and what follows from it."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from workers.sim.state import start_ticks

LAST = 199


@dataclass(frozen=True)
class Slot:
    """Held by a lock, which the kernel takes away from a process that has died."""

    number: int
    folder: Path
    lock: IO[str]

    @classmethod
    def take(cls, hosts: Path) -> Slot:
        """The first free one, without anything that an earlier holder has left."""
        hosts.mkdir(parents=True, exist_ok=True)
        for number in range(LAST):
            lock = (hosts / f"{number}.lock").open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                continue
            slot = cls(number, hosts / str(number), lock)
            slot.clean()
            slot.folder.mkdir()
            return slot
        raise RuntimeError(f"all {LAST} places for hosts of the lab are taken; see {hosts}")

    @property
    def machine(self) -> str:
        """Name of the container, the same on no two hosts."""
        return f"xlab{self.number}"

    @property
    def bridge(self) -> str:
        """Name of the network interface on this side."""
        return f"xlab-br{self.number}"

    @property
    def address(self) -> str:
        """The host's."""
        return f"10.99.{self.number}.2"

    @property
    def our_address(self) -> str:
        """This side's."""
        return f"10.99.{self.number}.1"

    @property
    def group(self) -> Path:
        """A cgroup of its own: two containers in one would take each other's units for theirs."""
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
        [place, *_] = [fields[1] for fields in mounts if fields[2] == "cgroup2"]
        return Path(place) / f"expctl-{self.machine}"

    def note(self, pid: int) -> None:
        """Remember the process that runs the container, for whoever has to clean up."""
        (self.folder / "process").write_text(f"{pid} {start_ticks(pid)}")

    def clean(self) -> None:
        """Remove everything of this place from this machine. What is not there is fine."""
        self._end_process()
        subprocess.run(["ip", "link", "delete", self.bridge], capture_output=True, check=False)
        mount = self.folder / "disk"
        if mount.is_mount():
            subprocess.run(["umount", "--lazy", str(mount)], check=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        for group in sorted(self.group.rglob("*/"), reverse=True) if self.group.exists() else ():
            with suppress(OSError):
                group.rmdir()
        with suppress(OSError):
            self.group.rmdir()

    def give_back(self) -> None:
        """Clean up and let others have it."""
        try:
            self.clean()
        finally:
            self.lock.close()

    def _end_process(self) -> None:
        """Only the very process that was noted: its start says that the number was not given to another since."""
        with suppress(OSError, ValueError, psutil.NoSuchProcess):
            pid, started = (self.folder / "process").read_text().split()
            process = psutil.Process(int(pid))
            if start_ticks(process.pid) == int(started):
                family = [*process.children(recursive=True), process]
                for each in family:
                    with suppress(psutil.NoSuchProcess):
                        os.kill(each.pid, signal.SIGKILL)
                psutil.wait_procs(family, timeout=10)
