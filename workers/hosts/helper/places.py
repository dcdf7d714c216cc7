"""Where things are, who asks, and what time it is: all that a test puts its own in the place of."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workers.hosts.helper.processes import user_name
from workers.hosts.helper.refusals import HELPER_MISSING, PERMISSION_DENIED, Refused

INSTALLED = "/usr/local/sbin/expctl-host"
ASKED_BY = ("SUDO_UID", "PKEXEC_UID", "DOAS_USER")
"""What sudo and its like set, and their user cannot: who is behind the root that we run as."""


class Places:
    """Every path that is used. `root` stands before all of them, in tests."""

    def __init__(self, root: str = "") -> None:
        self.root = root
        self.config = Path(root + "/etc/expctl-host.json")
        self.state = Path(root + "/var/lib/expctl-host")
        self.runtime = Path(root + "/run/expctl-host")
        self.units = Path(root + "/run/systemd/system")
        """Gone after a reboot, so that nothing of ours ever starts by itself."""
        self.lasting_units = Path(root + "/etc/systemd/system")
        self.work = Path(root + "/var/lib/expctl-work")
        """Where systemd makes the folders that commands work in."""
        self.proc = Path(root + "/proc")
        self.cgroups = Path(root + "/sys/fs/cgroup")

    def program(self, name: str) -> str:
        """A program's absolute path; no PATH is searched, so nobody else's program of that name is run."""
        for folder in ("/usr/bin/", "/bin/"):
            if Path(self.root + folder + name).exists():
                return self.root + folder + name
        raise Refused(HELPER_MISSING, f"{name} is not installed on this host")


@dataclass(frozen=True)
class Caller:
    """Who asks. `root` is true only for root itself: somebody who came by sudo is bound by the config's limits."""

    uid: int
    user: str
    root: bool


def calling(environment: Mapping[str, str]) -> Caller:
    """Who asks, from what sudo, pkexec or doas tell."""
    told = [environment[name] for name in ASKED_BY if name in environment]
    if not told:
        return Caller(os.getuid(), user_name(os.getuid()), root=os.geteuid() == 0)
    # Something unreadable in there is not root.
    uids = [int(text) if text.isdigit() else _uid(text) for text in told]
    stranger = next((uid for uid in uids if uid != 0), 0)
    return Caller(stranger, user_name(stranger), root=os.geteuid() == 0 and stranger == 0)


def _uid(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return -1


def places_for(environment: Mapping[str, str]) -> Places:
    """The host's own paths for root; a test's for whoever is not root. Refused without either."""
    if os.geteuid() == 0:
        return Places()
    root = environment.get("EXPCTL_HOST_ROOT", "")
    if not root.startswith("/"):
        raise Refused(PERMISSION_DENIED, "expctl-host does its work as root: call it through sudo")
    return Places(root)


class Clock:
    """Time, and this boot."""

    def __init__(self, places: Places) -> None:
        self._boot_id = places.proc / "sys/kernel/random/boot_id"

    def wall(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def since_boot(self) -> float:
        """Seconds since boot, sleep included; nobody can set it."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def monotonic(self) -> float:
        """Seconds of the clock that systemd's ...TimestampMonotonic count in."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def boot_id(self) -> str:
        """Tells one boot from another."""
        return self._boot_id.read_text(encoding="ascii").strip()


def stamp(wall: float) -> str:
    """Seconds since 1970 as UTC text."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall))
