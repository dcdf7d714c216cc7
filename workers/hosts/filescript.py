"""A host's side of collecting files: names what patterns find, and gives one file in pieces. Standard library only."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from workers.hosts.becoming import become
from workers.hosts.filesearch import is_folder, matches, opened, printable

MOST = 20_000
"""Names in one answer; whoever keeps files takes fewer."""
MOST_WARNINGS = 200


def main() -> None:
    """Find, or read a piece."""
    asked = json.load(sys.stdin)
    become(asked.get("user"))
    if "real" in asked:
        piece(asked["real"], int(asked["offset"]), int(asked["length"]))
    else:
        json.dump(found(Path(asked["cwd"]), asked["patterns"]), sys.stdout)


def found(root: Path, patterns: list[str]) -> dict[str, Any]:
    """Every regular file that matches, with its size, pattern by pattern; and why others are none."""
    if not is_folder(root):
        return {"gone": True}
    files: list[tuple[str, str, int]] = []
    warnings: list[str] = []
    for pattern in patterns:
        known = len(files) + len(warnings)
        for path, shown, search in matches(root, pattern, _nothing, warnings):
            if len(files) >= MOST:
                break
            got = opened(path, search)
            if isinstance(got, str):
                warnings.append(f"{printable(shown)} is left out: {got}")
                continue
            files.append((printable(shown), str(Path(f"/proc/self/fd/{got[0]}").readlink()), got[1]))
            os.close(got[0])
        if known == len(files) + len(warnings):
            warnings.append(f"{pattern} matches no file")
    return {"gone": False, "files": files, "warnings": warnings[:MOST_WARNINGS]}


def piece(real: str, offset: int, length: int) -> None:
    """A piece of a file that is still where it was found: no folder on the way may have become a link meanwhile."""
    source = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if str(Path(f"/proc/self/fd/{source}").readlink()) != real:
        raise SystemExit(f"{real} has become a link")
    sys.stdout.buffer.write(os.pread(source, length, offset))


def _nothing() -> None:
    """Nobody waits on this side."""


if __name__ == "__main__":
    main()
