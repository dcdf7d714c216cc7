"""What the processes of a unit have used, by /proc."""

from __future__ import annotations

import os
import time

from workers.hosts.base import Usage
from workers.hosts.process import PROC, Process, descendants

TICKS = os.sysconf("SC_CLK_TCK")
USER_TIME, SYSTEM_TIME = 11, 12
"""Places in /proc/PID/stat, counted behind the command."""
COUNTED = (b"rchar:", b"read_bytes:")


def used_by(main: Process, table: dict[int, Process]) -> Usage:
    """Of a unit's main process, its session and its descendants."""
    pids = {pid for pid, process in table.items() if process.session == main.pid} | {one.pid for one in descendants(main.pid, table)}
    times = [seconds for pid in pids | {main.pid} if (seconds := _cpu_s(pid)) is not None]
    reads = [count for pid in pids | {main.pid} if (count := _read_bytes(pid)) is not None]
    return Usage(sum(times) if times else None, sum(reads) if reads else None)


def age_s(main: Process) -> float:
    """How long a process has run: both ends by the kernel's time since boot, which nobody can set."""
    return max(time.clock_gettime(time.CLOCK_BOOTTIME) - main.start_ticks / TICKS, 0.0)


def _cpu_s(pid: int) -> float | None:
    fields = _content(pid, "stat").rpartition(b")")[2].split()
    return (int(fields[USER_TIME]) + int(fields[SYSTEM_TIME])) / TICKS if len(fields) > SYSTEM_TIME else None


def _read_bytes(pid: int) -> int | None:
    pairs = (line.split() for line in _content(pid, "io").splitlines())
    counts = [int(words[1]) for words in pairs if len(words) > 1 and words[0] in COUNTED]
    return sum(counts) if counts else None


def _content(pid: int, name: str) -> bytes:
    """Empty where the process has ended, or is another user's."""
    try:
        return (PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""
