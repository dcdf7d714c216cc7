"""Processes by what /proc says. A process is a pid together with its start time; a bare pid is never trusted."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
GONE = "ZX"
"""States of a process that has ended and only waits for its parent."""


@dataclass(frozen=True)
class Process:
    """One line of the process table."""

    pid: int
    start_ticks: int
    parent: int
    session: int
    state: str
    command: str

    @property
    def alive(self) -> bool:
        """Whether it still runs, as opposed to waiting to be reaped."""
        return self.state not in GONE


def read_process(pid: int) -> Process | None:
    """One process, or None where it is gone."""
    try:
        stat = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    head, _, tail = stat.rpartition(")")  # the command may hold blanks and brackets
    fields = tail.split()
    return Process(
        pid=pid,
        start_ticks=int(fields[19]),
        parent=int(fields[1]),
        session=int(fields[3]),
        state=fields[0],
        command=head.partition("(")[2],
    )


def all_processes() -> dict[int, Process]:
    """Every live process that is visible, by pid."""
    found = (read_process(int(entry.name)) for entry in PROC.iterdir() if entry.name.isdigit())
    return {process.pid: process for process in found if process is not None and process.alive}


def same_process(pid: int | None, start_ticks: int | None) -> Process | None:
    """The live process with this pid and start time; None where it has ended or the pid is another's now."""
    if pid is None or start_ticks is None:
        return None
    process = read_process(pid)
    return process if process is not None and process.alive and process.start_ticks == start_ticks else None


def descendants(pid: int, table: dict[int, Process]) -> Iterator[Process]:
    """Children, their children, and so on."""
    children: dict[int, list[Process]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process)
    waiting = list(children.get(pid, []))
    while waiting:
        process = waiting.pop()
        yield process
        waiting += children.get(process.pid, [])


def environment_value(pid: int, name: str) -> str | None:
    """A variable of a process's environment at its start; None where unset, or where the process is another user's."""
    try:
        block = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    wanted = name.encode() + b"="
    for item in block.split(b"\0"):
        if item.startswith(wanted):
            return item[len(wanted) :].decode("utf-8", "replace")
    return None


def command_line(pid: int) -> tuple[str, ...]:
    """The arguments as the process shows them (a program may rewrite them); empty where it is gone."""
    try:
        block = (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(part.decode("utf-8", "replace") for part in block.rstrip(b"\0").split(b"\0")) if block else ()


def owner(pid: int) -> str | None:
    """Name of the user that a process belongs to; None where it cannot be seen."""
    try:
        uid = (PROC / str(pid)).stat().st_uid
    except OSError:
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def own_user() -> str:
    """Name of the user that this process runs as."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # as in a container with a made-up user
        return str(os.geteuid())


def send_signal(process: Process, number: signal.Signals) -> None:
    """Signal exactly this process: never another one that has its pid by now.

    Raises PermissionError where it is another user's.
    """
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        # The handle is fixed to whoever had the pid when it was opened, so a check after opening cannot be overtaken.
        if same_process(process.pid, process.start_ticks) is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


def describe(processes: Iterable[Process]) -> str:
    """Such as `4711 (python, state S), 4712 (sleep, state D)`."""
    return ", ".join(f"{process.pid} ({process.command}, state {process.state})" for process in processes)
