"""The text of ssh_config, included files put in: paramiko passes over `Include`."""

from __future__ import annotations

import glob
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

USER_CONFIG = Path("~/.ssh/config")
SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
MAX_DEPTH = 16
KEYWORD = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*)")
EVERYTHING = "Host *"


def config_text(config: Path | None) -> str:
    """The user's and the system's ssh_config, or the given file instead of both. Missing: empty; OSError where a given one is missing."""
    if config is not None:
        return "\n".join(_lines(config.expanduser(), Path("~/.ssh").expanduser(), 0))
    lines: list[str] = []
    for path, folder in ((USER_CONFIG.expanduser(), USER_CONFIG.expanduser().parent), (SYSTEM_CONFIG, SYSTEM_CONFIG.parent)):
        if path.is_file():
            lines += [EVERYTHING, *_lines(path, folder, 0)]
    return "\n".join(lines)


def _lines(path: Path, folder: Path, depth: int) -> Iterator[str]:
    """A file's lines; relative names of included files are looked for in `folder`.

    After an included file the section goes on in which it was included. Sections inside the included file apply by their own
    patterns alone.
    """
    section = EVERYTHING
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        found = KEYWORD.fullmatch(line)
        keyword = found[1].lower() if found else ""
        if found is None or keyword != "include":
            if keyword in {"host", "match"}:
                section = line
            yield line
            continue
        if depth < MAX_DEPTH:
            for pattern in shlex.split(found[2], comments=True):
                for name in sorted(glob.glob(str(folder / Path(pattern).expanduser()))):  # noqa: PTH207 - absolute patterns too
                    if Path(name).is_file():
                        yield from _lines(Path(name), folder, depth + 1)
                        yield section
