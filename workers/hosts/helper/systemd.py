"""What systemd is asked, and what it says of units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workers.hosts.helper.places import Places
from workers.hosts.helper.programs import DEADLINE_S, Ran, run
from workers.hosts.helper.refusals import REMOTE_COMMAND_FAILED, Refused
from workers.hosts.helper.request import OUR_UNIT

SHOWN = (
    *("Id", "LoadState", "LoadError", "ActiveState", "SubState", "Result", "Type", "ExecMainStatus", "ExecMainCode"),
    *("MainPID", "ControlPID", "NRestarts", "InvocationID", "NeedDaemonReload", "ControlGroup", "FragmentPath", "DropInPaths"),
    *("ActiveEnterTimestampMonotonic", "InactiveEnterTimestampMonotonic", "ExecMainStartTimestampMonotonic"),
    *("ExecMainExitTimestampMonotonic", "UnitFileState", "User", "WorkingDirectory", "Restart", "KillMode", "Conflicts"),
    *("TriggeredBy", "Job", "ConditionResult", "CanStart", "CanStop", "CPUUsageNSec", "IOReadBytes"),
)
LIVING = ("active", "activating", "reloading", "deactivating", "refreshing", "maintenance")
"""ActiveState of a unit that has, or may have, processes."""


class Systemd:
    """The service manager."""

    def __init__(self, places: Places) -> None:
        self._places = places

    def try_to(self, *words: str, deadline_s: float = DEADLINE_S) -> Ran:
        """systemctl, whatever it says."""
        return run([self._places.program("systemctl"), "--no-pager", "--no-ask-password", *words], deadline_s)

    def ask(self, *words: str, deadline_s: float = DEADLINE_S) -> str:
        """What systemctl prints. Refused where it fails."""
        ran = self.try_to(*words, deadline_s=deadline_s)
        if ran.status != 0:
            said = (ran.err.strip() or ran.out.strip() or f"status {ran.status}")[:1000]
            raise Refused(REMOTE_COMMAND_FAILED, f"systemctl {' '.join(words)[:300]}: {said}")
        return ran.out

    def reload(self) -> None:
        """Have all unit files read again."""
        self.ask("daemon-reload", deadline_s=60.0)

    def version(self) -> int | None:
        """The version of systemd, None where it does not say."""
        words = self.ask("--version").split()
        digits = words[1].partition(".")[0].partition("~")[0] if len(words) > 1 else ""
        return int(digits) if digits.isdigit() else None

    def show(self, unit: str) -> dict[str, str]:
        """A unit's properties. One that systemd does not know has LoadState=not-found, which is an answer."""
        return self.show_all([unit])[0]

    def show_all(self, units: Sequence[str]) -> list[dict[str, str]]:
        """The properties of each unit. Refused where systemd's answer is not one block for each."""
        if not units:
            return []
        text = self.ask("show", f"--property={','.join(SHOWN)}", "--", *units)
        blocks = [properties(block) for block in text.strip("\n").split("\n\n")]
        if len(blocks) != len(units) or any("LoadState" not in block or "ActiveState" not in block for block in blocks):
            raise Refused(REMOTE_COMMAND_FAILED, f"systemctl show gave no proper answer for {', '.join(units)[:300]}: {text[:300]!r}")
        return blocks

    def value(self, unit: str, name: str) -> str:
        """One property, which may have several lines; empty where systemd does not know it."""
        return self.ask("show", f"--property={name}", "--value", "--", unit).rstrip("\n")

    def our_units(self) -> list[str]:
        """Every unit of ours that systemd knows or that has a file."""
        known = self.ask("list-units", "--all", "--full", "--plain", "--no-legend", "--type=service", "expctl-*.service")
        names = {line.split()[0] for line in known.split("\n") if line.strip()}
        folder = self._places.units
        names |= {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
        return sorted(name for name in names if OUR_UNIT.fullmatch(name))


def properties(block: str) -> dict[str, str]:
    """`Name=value` lines."""
    pairs = (line.partition("=") for line in block.split("\n"))
    return {name: value for name, equals, value in pairs if equals}


def living(show: dict[str, str]) -> bool:
    """Whether a unit has, or may have, processes."""
    return show["ActiveState"] in LIVING


def number(show: dict[str, Any], name: str) -> int:
    """A property that is a number; 0 where systemd does not say."""
    text = str(show.get(name, ""))
    return int(text) if text.isdigit() else 0
