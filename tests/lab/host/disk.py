"""What a host keeps over a power cut: a view of the built root on which only what it writes takes place."""

from __future__ import annotations

import functools
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@functools.cache
def overlay_works(folder: Path) -> bool:
    """Whether this machine lets us mount one. Else each host gets a copy, which takes seconds instead of nothing."""
    for name in ("lower", "upper", "work", "merged"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    words = f"lowerdir={folder}/lower,upperdir={folder}/upper,workdir={folder}/work"
    tried = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "overlay", "overlay", "-o", words, str(folder / "merged")], capture_output=True, check=False
    )
    return tried.returncode == 0


@dataclass(frozen=True)
class Disk:
    """One host's. `base` is never written."""

    base: Path
    folder: Path
    overlay: bool
    mib: int | None = None
    """Its size, for a host that a test fills; None: as much as this machine has."""

    @classmethod
    def make(cls, base: Path, folder: Path, mib: int | None, *, overlay: bool) -> Disk:
        """A fresh one."""
        disk = cls(base, folder, overlay, mib)
        disk.folder.mkdir()
        (folder.parent / "root").write_text(str(base))
        if mib is not None:
            if not overlay:
                raise RuntimeError("a disk that can be filled needs overlayfs, which this machine does not allow")
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=755", "tmpfs", str(folder)], check=True)
        if overlay:
            for name in ("upper", "work", "merged"):
                (folder / name).mkdir()
            (folder / "upper").chmod(0o755)
        else:
            subprocess.run(["cp", "-a", "--reflink=auto", str(base), str(disk.root)], check=True)
        return disk

    @property
    def root(self) -> Path:
        """Where the host's root is, for a process in `enclosed`."""
        return self.folder / "merged"

    def enclosed(self, argv: Sequence[str], *spaces: str) -> list[str]:
        """A command that runs `argv` where the root is mounted. The mount ends with the last process that sees it: nobody unmounts.

        `spaces`: options of unshare, for what else it shall not share with this machine.
        """
        mount = "true"
        if self.overlay:
            words = f"lowerdir={self.base},upperdir={self.folder}/upper,workdir={self.folder}/work"
            mount = shlex.join(["mount", "-t", "overlay", "overlay", "-o", words, str(self.root)])
        return ["unshare", "--mount", "--propagation", "slave", *spaces, "sh", "-ec", f"{mount}\nexec {shlex.join(argv)}"]

    def fill(self) -> None:
        """Not one byte is left."""
        if self.mib is None:
            raise RuntimeError("this host's disk is this machine's; make the host with disk_mib to fill it")
        shrink(self.folder, [])

    def relieve(self) -> None:
        """As before."""
        subprocess.run(["mount", "-o", f"remount,size={self.mib}m", str(self.folder)], check=True)


def shrink(place: Path, prefix: Sequence[str]) -> None:
    """Make a tmpfs as small as what is on it. It may grow in between, so that the answer is no until it did not."""
    for _ in range(20):
        asked = subprocess.run([*prefix, "stat", "-f", "-c", "%b %f %S", str(place)], capture_output=True, text=True, check=True)
        blocks, free, block = map(int, asked.stdout.split())
        size = max(1, blocks - free) * block  # to tmpfs, 0 would be no limit at all
        done = subprocess.run([*prefix, "mount", "-o", f"remount,size={size}", str(place)], capture_output=True, check=False)
        if done.returncode == 0:
            return
    raise RuntimeError(f"{place} would not become full")
