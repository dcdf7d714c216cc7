"""Keep copies of files that a command has made: by patterns, bounded, and never led astray by a symbolic link."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from service.domain.reasons import Reason
from workers.hosts.base import Collected, CollectedFile, HostError
from workers.hosts.filesearch import Search, Tick, is_folder, matches, opened, printable
from workers.hosts.units import os_errors

MAX_FILES = 1000
MAX_WARNINGS = 50
CHUNK_BYTES = 1 << 20


def collect(patterns: Sequence[str], cwd: str, into: Path, limit_bytes: int, tick: Tick) -> Collected:
    """Copy every regular file that matches below `into`, which is emptied first.

    At most `limit_bytes` and 1000 files in all; what is left out, and every pattern without a match, is a warning.
    """
    root = Path(cwd)
    if not is_folder(root):
        raise HostError(Reason.REMOTE_COMMAND_FAILED, f"no artifacts can be kept: the folder {cwd} is not there")
    with os_errors():
        if into.exists():
            shutil.rmtree(into)
        into.mkdir(mode=0o700, parents=True)
        keeper = _Keeper(into.resolve(), limit_bytes, tick)
        for pattern in patterns:
            keeper.keep(root, pattern)
    told = keeper.warnings[:MAX_WARNINGS]
    if len(keeper.warnings) > MAX_WARNINGS:
        told.append(f"and {len(keeper.warnings) - MAX_WARNINGS} more of these")
    return Collected(str(into), tuple(keeper.files), tuple(told))


class _Keeper:
    """Copies what patterns find, as long as there is room."""

    def __init__(self, into: Path, limit_bytes: int, tick: Tick) -> None:
        self._into, self._left, self._limit, self._tick = into, limit_bytes, limit_bytes, tick
        self._seen: set[str] = set()
        self.files: list[CollectedFile] = []
        self.warnings: list[str] = []

    def keep(self, root: Path, pattern: str) -> None:
        """Keep all that one pattern finds, in order of name."""
        any_found = False
        for path, shown, search in matches(root, pattern, self._tick, self.warnings):
            any_found = True
            if shown in self._seen:
                continue
            if len(self.files) >= MAX_FILES:
                self.warnings.append(f"{pattern}: more than {MAX_FILES} files in all; the rest is left out")
                return
            self._seen.add(shown)
            why = self._copy(path, shown, search)
            if why:
                self.warnings.append(f"{printable(shown)} is left out: {why}")
        if not any_found:
            self.warnings.append(f"{pattern} matches no file")

    def _copy(self, path: Path, shown: str, search: Search) -> str:
        """Copy one file; why not, otherwise."""
        if Path(os.path.realpath(path)).is_relative_to(self._into):
            return "it is a copy itself"
        source = opened(path, search)
        if isinstance(source, str):
            return source
        with os.fdopen(source[0], "rb") as file:
            return self._copy_open(file, source[1], shown)

    def _copy_open(self, file: BinaryIO, size: int, shown: str) -> str:
        if size > self._left:
            return f"with its {size:,} bytes there would be more than {self._limit:,} in all"
        target = self._into / shown.lstrip("/")
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Read no further than the size it had: somebody may still be writing to it.
            size, digest = _write(file, target, size, self._tick)
        except (FileExistsError, NotADirectoryError):
            return "another file is kept under that name"
        self._left -= size
        self.files.append(CollectedFile(printable(shown), size, digest))
        return ""


def _write(file: BinaryIO, target: Path, size: int, tick: Tick) -> tuple[int, str]:
    digest = hashlib.sha256()
    left = size
    with target.open("xb") as out:
        while left and (chunk := file.read(min(CHUNK_BYTES, left))):
            tick()
            out.write(chunk)
            digest.update(chunk)
            left -= len(chunk)
    return size - left, digest.hexdigest()
