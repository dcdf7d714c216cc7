"""Whether a unit that runs would come back as what it is: what has changed since it started, what is gone, what it takes along."""

from __future__ import annotations

import os
import re
from pathlib import Path

from workers.hosts.helper.context import Context
from workers.hosts.helper.sources import FOLDERS, Source, environment_files
from workers.hosts.helper.systemd import living, number, properties

PROGRAM_SHOWN = re.compile(r"\{ path=(/.*?) ; argv\[\]=")
TAKEN_ALONG = ("RequiredBy", "BoundBy", "ConsistsOf")
"""Units that systemd stops when this one is stopped. Started again, it does not bring them back."""
BROUGHT_BACK = ("Requires", "Wants", "BindsTo", "Upholds")


def comeback(context: Context, source: Source) -> dict[str, list[str]]:
    """Of a unit that runs; all of it empty for one that does not."""
    pid = number(source.show, "MainPID")
    if not living(source.show) or not pid:
        return {"changed": [], "missing": [], "taken_along": []}
    return {
        "changed": _changed(context, source),
        "missing": _missing(context, source.unit, pid),
        "taken_along": _taken_along(context, source.unit),
    }


def _changed(context: Context, source: Source) -> list[str]:
    """Its files and folders of drop-ins, and its environment files, that were touched after its program had started.

    By the time of the last change of any kind, which nobody can set: a file that was moved into place is younger than its text.
    """
    started_s = number(source.show, "ExecMainStartTimestampMonotonic") / 1e6
    if not started_s:
        return []
    started = context.clock.wall() - (context.clock.monotonic() - started_s)
    files = [path for path, _ in source.files] + [path for path, _ in environment_files(context.systemd, source.unit)]
    # One that was taken away leaves its trace in the folder alone.
    folders = [f"{folder}system/{source.unit}.d" for folder in FOLDERS]
    return [path for path in dict.fromkeys(files + folders) if _touched(context.places.root + path) > started]


def _touched(path: str) -> float:
    try:
        return max(os.lstat(path).st_ctime, Path(path).stat().st_ctime)
    except OSError:  # what is missing is told elsewhere
        return 0.0


def _missing(context: Context, unit: str, pid: int) -> list[str]:
    """Environment files and programs without which systemd would not start it again."""
    needed = [path for path, optional in environment_files(context.systemd, unit) if not optional and "*" not in path]
    gone = [path for path in needed if not Path(context.places.root + path).exists()]
    # What the unit sees may be mounted for it alone: seen from its own process.
    views = (context.places.root, str(context.places.proc / str(pid) / "root"))
    programs = PROGRAM_SHOWN.findall(context.systemd.value(unit, "ExecStart"))
    return gone + [path for path in programs if not any(Path(view + path).exists() for view in views)]


def _taken_along(context: Context, unit: str) -> list[str]:
    """Living services that would be stopped with it, and that its start would not bring back."""
    told = properties(context.systemd.ask("show", f"--property={','.join(TAKEN_ALONG + BROUGHT_BACK)}", "--", unit))
    back = {one for name in BROUGHT_BACK for one in told.get(name, "").split()}
    with_it = sorted({one for name in TAKEN_ALONG for one in told.get(name, "").split() if one.endswith(".service")} - back)
    return [one for one, show in zip(with_it, context.systemd.show_all(with_it)) if living(show)]
