"""Ports, processes and the machine itself: reading only."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any

from workers.hosts.helper.context import Context
from workers.hosts.helper.observing import status
from workers.hosts.helper.places import Places
from workers.hosts.helper.refusals import Refused
from workers.hosts.helper.request import Fields
from workers.hosts.helper.systemd import living

LISTEN = "0A"
MIB = 1_048_576
MOST_DISKS = 64


def look(context: Context, fields: Fields) -> dict[str, Any]:
    """What a poll needs, in one call: a unit, who listens on a port, some processes."""
    unit = context.config.known_unit(str(fields.take("unit")))
    port = fields.integer("port", 1, 65_535) if fields.has("port") else fields.take("port")
    pids = fields.pids("pids")
    fields.done()
    now = status(context, unit)
    return {
        "status": now,
        "owners": [] if port is None else owners(context, port, now["pids"]),
        "processes": _processes(context, pids),
    }


def port_verb(context: Context, fields: Fields) -> dict[str, Any]:
    """Who listens on a port."""
    port = fields.integer("port", 1, 65_535)
    fields.done()
    return {"owners": owners(context, port, [])}


def processes_verb(context: Context, fields: Fields) -> dict[str, Any]:
    """Some processes in full; those that have ended are left out."""
    pids = fields.pids("pids")
    fields.done()
    return {"processes": _processes(context, pids)}


def _processes(context: Context, pids: list[int]) -> list[dict[str, Any]]:
    found = [one for one in map(context.processes.describe, pids) if one is not None]
    units = sorted({one["unit"] for one in found if one["unit"]})
    try:
        lives = dict(zip(units, map(living, context.systemd.show_all(units))))
    except Refused:  # nobody knows, then
        lives = {}
    return [{**one, "unit_lives": lives.get(one["unit"])} for one in found]


def owners(context: Context, port: int, likely: list[int]) -> list[dict[str, Any]]:
    """One entry for each socket that listens on a port, IPv4 or IPv6, whatever the address.

    The likely processes are asked first, since reading every descriptor on the host takes long; only sockets that none of them
    holds are looked for everywhere.
    """
    inodes = _listening(context.places.proc, port)
    holders: dict[str, list[int]] = {inode: [] for inode in inodes}
    for pids in (likely, None):
        missing = {inode for inode, found in holders.items() if not found}
        if missing:
            for pid in context.processes.pids() if pids is None else pids:
                for inode in missing.intersection(context.processes.sockets(pid)):
                    holders[inode].append(pid)
    return [_owner(context, sorted(pids)) for _, pids in sorted(holders.items())]


def _owner(context: Context, pids: list[int]) -> dict[str, Any]:
    if not pids:  # a socket of the kernel, or its process has just ended
        return {"pid": None, "pids": [], "argv0": None, "command": None, "unit": None, "user": None}
    # A server that forked shares its socket with its children: the one that a unit answers for speaks for all.
    pid = next((one for one in pids if context.processes.unit(one) is not None), pids[0])
    argv = context.processes.command_line(pid)
    return {
        "pid": pid,
        "pids": pids,
        "argv0": argv[0] if argv else None,
        "command": " ".join(argv)[:1000] or None,
        "unit": context.processes.unit(pid),
        "user": context.processes.user(pid),
    }


def _listening(proc: Path, port: int) -> set[str]:
    inodes = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text(encoding="ascii").split("\n")[1:]
        except FileNotFoundError:  # a kernel without IPv6
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[3] == LISTEN and int(fields[1].rpartition(":")[2], 16) == port:  # noqa: PLR2004 - the inode's place
                inodes.add(fields[9])
    return inodes


def facts(context: Context, fields: Fields) -> dict[str, Any]:
    """What kind of machine this is; what cannot be read is null."""
    fields.done()
    proc = context.places.proc
    memory = _pairs(proc / "meminfo")
    shm_total, shm_free = _space(context.places.root + "/dev/shm")  # noqa: S108 - looked at, not written to
    return {
        "facts": {
            "hostname": platform.node(),
            "os": _os_name(context.places.root),
            "kernel": platform.release(),
            "cpu_model": _pairs(proc / "cpuinfo").get("model name"),
            "cpus": os.cpu_count(),
            "memory_mib": _mib(memory.get("MemTotal")),
            "page_cache_mib": _mib(memory.get("Cached")),
            "memory_available_mib": _mib(memory.get("MemAvailable")),
            "shm_total_mib": shm_total,
            "shm_used_mib": None if shm_total is None or shm_free is None else shm_total - shm_free,
            "disks": _disks(context.places),
            "boot_id": context.clock.boot_id(),
            "uptime_s": int(context.clock.since_boot()),
            "systemd": context.systemd.version(),
            "python": platform.python_version(),
        }
    }


def _pairs(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return {}
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found


def _mib(text: str | None) -> int | None:
    return int(text.split()[0]) // 1024 if text else None


def _os_name(root: str) -> str | None:
    try:
        text = Path(root + "/etc/os-release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r'^PRETTY_NAME="?([^"\n]*)', text, re.MULTILINE)
    return match.group(1) if match else None


def _space(path: str) -> tuple[int | None, int | None]:
    try:
        found = os.statvfs(path)
    except OSError:
        return None, None
    return found.f_blocks * found.f_frsize // MIB, found.f_bavail * found.f_frsize // MIB


def _disks(places: Places) -> list[dict[str, Any]]:
    """The file systems on block devices; a network's may hang for minutes when it is asked."""
    try:
        lines = (places.proc / "mounts").read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return []
    found: dict[str, str] = {}
    for line in lines:
        device, _, rest = line.partition(" ")
        if device.startswith("/dev/") and not device.startswith("/dev/loop"):
            mount = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), rest.partition(" ")[0])
            # The same one may be mounted again further down, or lend a single file.
            found[device] = min(found.get(device, mount), mount, key=len)
    disks = []
    for mount in sorted(found.values())[:MOST_DISKS]:
        total, free = _space(places.root + mount)
        disks.append({"mount": mount, "total_mib": total, "free_mib": free})
    return disks
