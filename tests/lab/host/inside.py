"""How a command gets into a host: with its namespaces, and with no more rights over this machine than the host has itself."""

from __future__ import annotations

import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.lab.host.disk import Disk

NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd")
CHROOT = ("--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child")
# What systemd-nspawn takes from a container of ours: above all the clock, the kernel's modules, and the switch of this machine.
NEVER = (
    "sys_time",
    "sys_module",
    "sys_boot",
    "sys_rawio",
    "sys_pacct",
    "syslog",
    "wake_alarm",
    "block_suspend",
    "mac_admin",
    "mac_override",
)


def into_running(init: int, argv: Sequence[str], user: str) -> list[str]:
    """A command that runs `argv` beside the host's process 1. Who enters from outside has every right, unless it is taken away."""
    status = Path(f"/proc/{init}/status").read_text()
    [allowed] = re.findall(r"^CapBnd:\s+(\w+)$", status, re.MULTILINE)
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    taken = [f"-cap_{number}" for number in range(last + 1) if not int(allowed, 16) >> number & 1]
    return ["nsenter", "-t", str(init), *NAMESPACES, "--", *_as(user, taken), *argv]


def into_disk(disk: Disk, argv: Sequence[str], user: str) -> list[str]:
    """A command that runs `argv` on the disk of a host that is off; it sees none of this machine's processes and no network."""
    return disk.enclosed(["chroot", str(disk.root), *_as(user, [f"-{name}" for name in NEVER]), *argv], *CHROOT)


def _as(user: str, taken: Sequence[str]) -> list[str]:
    # Root's rights in a new program are those of the bounding set.
    person = [f"--reuid={user}", f"--regid={user}", "--init-groups", "--reset-env"] if user != "root" else []
    return ["setpriv", *([f"--bounding-set={','.join(taken)}"] if taken else []), *person, "--"]


def finish(command: Sequence[str], stdin: bytes, seconds: float) -> subprocess.CompletedProcess[bytes]:
    """Run one of these to its end.

    A host that goes down stops all its processes for a moment. nsenter, outside, then stops itself and is told by nobody to go
    on; and as long as it has not taken notice of its child's end, the host cannot end either. So it is told from here.
    """
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/root"}
    end = time.monotonic() + seconds
    with tempfile.TemporaryFile() as given:
        # Not a pipe: what a first `communicate` has not written by its timeout, no second one writes in Python 3.11.
        given.write(stdin)
        given.seek(0)
        with subprocess.Popen(command, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
            while True:
                try:
                    out, err = process.communicate(timeout=0.25)
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGCONT)
                    if time.monotonic() > end:
                        process.kill()
                        raise
                else:
                    return subprocess.CompletedProcess(command, process.returncode, out, err)
