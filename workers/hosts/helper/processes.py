"""Processes, by what /proc says: which live, whose they are, and which unit each belongs to."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NOT_YET_STARTED = ("systemd", "systemd-executor")
"""What a unit's process still is between fork and exec."""


@dataclass(frozen=True)
class Process:
    """A process. Its pid and start time together name it for good."""

    pid: int
    name: str
    state: str
    parent: int
    start_ticks: int


class Processes:
    """The process table."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc

    def pids(self) -> list[int]:
        """Every pid."""
        return sorted(int(entry.name) for entry in self._proc.iterdir() if entry.name.isdigit())

    def read(self, pid: int) -> Process | None:
        """A process, None where it has ended. A dead one whose parent has not looked yet has ended, unless threads of it live on."""
        text = self._text(pid, "stat")
        head, _, tail = text.rpartition(")")  # the name may hold blanks and brackets
        fields = tail.split()
        if not fields or (fields[0] in "ZX" and int(fields[17]) <= 1):
            return None
        return Process(pid, head.partition("(")[2], fields[0], int(fields[1]), int(fields[19]))

    def command_line(self, pid: int) -> list[str]:
        """The arguments, empty where it has ended. Of a program that has written a title over them, the title alone."""
        text = self._text(pid, "cmdline")
        title = text.rstrip("\0")
        if not title or "\0" not in title:  # behind a title, the place of the arguments is filled up with zeros
            return [title] if title else []
        return (text[:-1] if text.endswith("\0") else text).split("\0")

    def started(self, pid: int) -> bool:
        """Whether the process is the program yet, and no longer the service manager's copy that is about to become it."""
        try:
            program = os.readlink(self._proc / str(pid) / "exe")
        except OSError:
            return False
        return program.rpartition("/")[2] not in NOT_YET_STARTED

    def variables(self, pid: int) -> dict[str, str]:
        """The environment as it was at the start; empty where it has ended, or the program has written over it."""
        pairs = (entry.partition("=") for entry in self._text(pid, "environ").split("\0"))
        return {name: value for name, equals, value in pairs if equals and name}

    def users(self, pid: int) -> list[int]:
        """The real, effective, saved and file system user of a process; empty where it has ended."""
        for line in self._text(pid, "status").split("\n"):
            if line.startswith("Uid:"):
                return [int(uid) for uid in line.split()[1:]]
        return []

    def user(self, pid: int) -> str | None:
        """The name of who runs it."""
        uids = self.users(pid)
        return user_name(uids[1]) if uids else None

    def unit(self, pid: int) -> str | None:
        """The system's unit that it belongs to. Units of a user's own service manager or of a container lie within one of those."""
        own = self._cgroup(1).rpartition("/init.scope")[0]  # in a container without its own view, everything lies below this
        path = self._cgroup(pid)
        parts = path[len(own) :].split("/") if path.startswith(own) else []
        return next((part for part in parts if part.endswith((".service", ".scope"))), None)

    def of_unit(self, unit: str) -> list[int]:
        """The living processes of a unit, also of one that has ended: those it left over."""
        # With Delegate=yes a unit has cgroups of its own below it: any part of the path counts.
        return [pid for pid in self.pids() if unit in self._cgroup(pid).split("/") and self.read(pid) is not None]

    def read_bytes(self, pids: Sequence[int]) -> int | None:
        """What these have read: from disks, and by calls whatever the data came from. None where none of them says."""
        pairs = [line.partition(": ") for pid in pids for line in self._text(pid, "io").split("\n")]
        counts = [int(count) for name, _, count in pairs if name in ("rchar", "read_bytes") and count.isdigit()]
        return sum(counts) if counts else None

    def _cgroup(self, pid: int) -> str:
        """The path that systemd keeps it under, in either version of cgroups."""
        found = []
        for line in self._text(pid, "cgroup").split("\n"):
            _, controllers, path = (*line.split(":", 2), "", "")[:3]
            if controllers in ("", "name=systemd") and path:
                found.append(path)
        # Where both versions are mounted, only one of them is systemd's; the other one shows a path that says nothing.
        kept = [path for path in found if path.endswith((".service", ".scope", ".slice")) or ".slice/" in path]
        return next(iter(kept + found), "")

    def describe(self, pid: int) -> dict[str, Any] | None:
        """A process in full; None where it has ended."""
        process = self.read(pid)
        if process is None:
            return None
        return {
            "pid": pid,
            "name": process.name,
            "user": self.user(pid),
            "unit": self.unit(pid),
            "state": process.state,
            "start_ticks": process.start_ticks,
            "ppid": process.parent,
            "cmdline": self.command_line(pid),
        }

    def sockets(self, pid: int) -> Iterator[str]:
        """The inodes of the sockets that it holds."""
        try:
            entries = list((self._proc / str(pid) / "fd").iterdir())
        except OSError:  # it has ended
            return
        for entry in entries:
            try:
                target = os.readlink(entry)
            except OSError:
                continue
            if target.startswith("socket:["):
                yield target[8:-1]

    def _text(self, pid: int, name: str) -> str:
        try:
            return (self._proc / str(pid) / name).read_bytes().decode("utf-8", "replace")
        except OSError:  # it has ended
            return ""


def user_name(uid: int) -> str:
    """The name of a user, the number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)
