"""Who listens on a TCP port, from /proc."""

from __future__ import annotations

from pathlib import Path

from workers.hosts.process import PROC

LISTEN = "0A"


def listening_inodes(port: int) -> set[str]:
    """The listening sockets on a port, on whatever address, IPv4 and IPv6."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = (PROC / "net" / table).read_text(encoding="ascii").splitlines()[1:]
        except FileNotFoundError:  # a kernel without IPv6
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(fields[9])
    return inodes


def socket_owners(inodes: set[str]) -> dict[str, list[int]]:
    """For each socket the processes that hold it, as far as they can be seen: a forked server shares one with its children."""
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    owners: dict[str, list[int]] = {inode: [] for inode in inodes}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            for target in _open_files(entry / "fd"):
                if target in wanted:
                    owners[wanted[target]].append(int(entry.name))
    return {inode: sorted(set(pids)) for inode, pids in owners.items()}


def _open_files(folder: Path) -> list[str]:
    try:
        entries = list(folder.iterdir())
    except OSError:  # gone, or another user's
        return []
    targets = []
    for entry in entries:
        try:
            targets.append(str(entry.readlink()))
        except OSError:
            continue
    return targets
