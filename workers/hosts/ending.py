"""Processes of this machine that no unit has any more: who they are, and how one is ended by its pid."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path

from service.domain.reasons import Reason
from workers.hosts.base import HostError, ProcessInfo
from workers.hosts.process import command_line, own_user, owner, read_process, same_process, send_signal
from workers.hosts.units import unit_of

POLL_S = 0.05


def describe_processes(pids: Sequence[int], units: Path) -> dict[int, ProcessInfo]:
    """What /proc says of each, and the unit that it belongs to; those that are gone are left out."""
    found = {}
    for pid in pids:
        process = read_process(pid)
        if process is not None:
            # Not the whole command line: a key may stand in it.
            title = next(iter(command_line(pid)), "").strip() or process.command
            whose = owner(pid)
            unit = unit_of(units, pid) if whose == own_user() else None
            found[pid] = ProcessInfo(pid, title, whose, unit, process.state, process.start_ticks)
    return found


def end_process(pid: int, start_ticks: int, *, grace_s: float = 15.0, kill_timeout_s: float = 20.0) -> bool:
    """TERM, then KILL after `grace_s`; False where exactly this process was gone already.

    HostError: permission_denied where it is another user's, unkillable_process where it survives KILL.
    """
    process = same_process(pid, start_ticks)
    if process is None:
        return False
    whose = owner(pid)
    if whose != own_user():
        raise HostError(Reason.PERMISSION_DENIED, f"pid {pid} ({process.command}) belongs to {whose or 'somebody unknown'}")
    for number, within_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, kill_timeout_s)):
        try:
            send_signal(process, number)
        except PermissionError as error:  # a program that changed its user meanwhile
            raise HostError(Reason.PERMISSION_DENIED, f"pid {pid} ({process.command}): {error}") from error
        if _gone(pid, start_ticks, within_s):
            return True
    left = same_process(pid, start_ticks)
    if left is None:
        return True
    raise HostError(Reason.UNKILLABLE_PROCESS, f"still there after SIGKILL: {pid} ({left.command}, state {left.state})")


def _gone(pid: int, start_ticks: int, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while same_process(pid, start_ticks) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
