"""One unit at one moment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from workers.hosts.helper.context import Context
from workers.hosts.helper.files import make_folder, read_ours, write_ours
from workers.hosts.helper.systemd import living, number


def status(context: Context, unit: str) -> dict[str, Any]:
    """What systemd and /proc say of a unit."""
    return _status(context, unit, context.systemd.show(unit))


def every_status(context: Context) -> list[dict[str, Any]]:
    """The status of every unit of ours."""
    names = context.systemd.our_units()
    return [_status(context, unit, show) for unit, show in zip(names, context.systemd.show_all(names))]


def _status(context: Context, unit: str, show: dict[str, str]) -> dict[str, Any]:
    pid, pids = number(show, "MainPID"), context.processes.of_unit(unit)
    return {
        "unit": unit,
        "show": show,
        "argv": context.processes.command_line(pid) if pid else [],
        "seen_argv": seen(context, unit, show["InvocationID"]).get("argv", []) if show.get("InvocationID") else [],
        "pids": pids,
        "read_bytes": context.processes.read_bytes(pids),
        "age_s": running_for_s(context, show) if pid else None,
        "boot_id": context.clock.boot_id(),
    }


def running_for_s(context: Context, show: dict[str, str]) -> float | None:
    """How long ago a unit's main process began; None where systemd does not say."""
    began_us = number(show, "ExecMainStartTimestampMonotonic")
    return context.clock.monotonic() - began_us / 1e6 if began_us else None


def seen_path(context: Context, unit: str) -> Path:
    """Where it is kept what a unit's program showed right after its start."""
    return context.places.runtime / f"{unit}.seen.json"


def seen(context: Context, unit: str, invocation: str) -> dict[str, Any]:
    """What that invocation showed right after its start; empty where nobody looked in time."""
    raw = read_ours(seen_path(context, unit))
    kept: dict[str, Any] = json.loads(raw) if raw else {}
    return kept if kept.get("invocation") == invocation else {}


def keep_seen(context: Context, unit: str, invocation: str, argv: list[str], variables: dict[str, str]) -> None:
    """Keep it: the program may overwrite both seconds later, and whoever asked may not get this answer."""
    make_folder(context.places.runtime)
    write_ours(seen_path(context, unit), json.dumps({"invocation": invocation, "argv": argv, "variables": variables}))


def brief(show: dict[str, str]) -> dict[str, str]:
    """The few properties that say how a unit is."""
    names = ("ActiveState", "SubState", "Result", "MainPID", "InvocationID", "NRestarts")
    return {name: show[name] for name in names if name in show}


def gone(context: Context, unit: str) -> bool:
    """Whether a unit has ended and left no process."""
    return not living(context.systemd.show(unit)) and not context.processes.of_unit(unit)
