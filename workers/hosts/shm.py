"""Shared memory of this machine: NCCL fails to start where it is full, and engines that were killed leave their files there."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path

from workers.hosts.base import ShmUsage
from workers.hosts.process import PROC

SHM = Path("/dev/shm")  # noqa: S108 - no temporary file of ours: it is looked at
PATTERNS = ("psm_*", "nccl-*", "sem.*", "torch_*", "__KMP_REGISTERED_LIB_*")
"""What Python's shared memory, NCCL, semaphores, PyTorch and OpenMP name their files."""
MIB = 2**20


def shm_usage(folder: Path = SHM) -> ShmUsage | None:
    """How full it is, and which files of our user nobody maps; None where there is no such file system."""
    try:
        size = os.statvfs(folder)
        names = {entry.name for entry in folder.iterdir() if _ours(entry)}
    except OSError:
        return None
    total = size.f_blocks * size.f_frsize
    used = total - size.f_bfree * size.f_frsize
    return ShmUsage(used // MIB, total // MIB, tuple(sorted(names - _mapped(folder, names))))


def _ours(entry: Path) -> bool:
    try:
        return any(fnmatchcase(entry.name, pattern) for pattern in PATTERNS) and entry.stat().st_uid == os.geteuid()
    except OSError:  # removed meanwhile
        return False


def _mapped(folder: Path, names: set[str]) -> set[str]:
    if not names:
        return set()
    mapped: set[str] = set().union(*(_maps(entry / "maps") for entry in PROC.iterdir() if entry.name.isdigit()))
    return {name for name in names if f"{folder}/{name}" in mapped}


def _maps(path: Path) -> set[str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # gone, or another user's
        return set()
    return {line.split(maxsplit=5)[-1] for line in text.splitlines()}
