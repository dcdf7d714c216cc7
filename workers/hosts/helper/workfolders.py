"""The folders that commands worked in, and how one is taken away without touching anything else."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import Any

from workers.hosts.helper.context import Context
from workers.hosts.helper.files import check_ours
from workers.hosts.helper.refusals import INTERNAL_ERROR, PERMISSION_DENIED, STALE_UNIT_DEFINITION, Refused
from workers.hosts.helper.request import OUR_UNIT, Fields
from workers.hosts.helper.systemd import living

ENDING = ".service"
MOST_FOLDERS = 10_000


def work_folders(context: Context, fields: Fields) -> dict[str, Any]:
    """The units that have such a folder. What else lies there is nobody's business."""
    fields.done()
    place = context.places.work
    check_ours(place)
    names = sorted(entry.name for entry in os.scandir(place) if entry.is_dir(follow_symlinks=False)) if place.is_dir() else []
    return {"units": [name + ENDING for name in names if OUR_UNIT.fullmatch(name + ENDING)][:MOST_FOLDERS]}


def remove_work(context: Context, fields: Fields) -> dict[str, Any]:
    """Take an ended unit's folder away, with all that is in it. Refused for anything that is no such folder.

    Its owner may change it meanwhile: no link is followed, neither in its place nor inside.
    """
    unit = context.config.our_unit(fields.text("unit", OUR_UNIT))
    fields.done()
    if living(context.systemd.show(unit)) or context.processes.of_unit(unit):
        raise Refused(STALE_UNIT_DEFINITION, f"{unit} still has processes: stop it first")
    check_ours(context.places.work)
    path = context.places.work / unit[: -len(ENDING)]
    try:
        found = path.lstat()
    except FileNotFoundError:
        return {"removed": False}
    if not stat.S_ISDIR(found.st_mode):
        raise Refused(PERMISSION_DENIED, f"{path} is no folder, but a link or a file that somebody has put in its place")
    _nothing_mounted(context, path)
    if not shutil.rmtree.avoids_symlink_attacks:
        raise Refused(INTERNAL_ERROR, f"this Python cannot remove {path} without following links")
    shutil.rmtree(path)
    return {"removed": True}


def _nothing_mounted(context: Context, path: Path) -> None:
    """What an admin has mounted there is a disk of its own, whose content nobody wants to lose."""
    real = os.path.realpath(path)
    for line in (context.places.proc / "self/mountinfo").read_text(encoding="utf-8", errors="replace").split("\n"):
        fields = line.split()
        where = fields[4] if len(fields) > 4 else ""  # noqa: PLR2004 - the place of the mount point
        if where == real or where.startswith(real + "/"):
            raise Refused(PERMISSION_DENIED, f"something is mounted at {where[:300]}: it is not removed")
