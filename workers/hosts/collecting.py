"""Keep copies of files that a command has made: by patterns, bounded, and never led astray by a symbolic link."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from service.domain.reasons import Reason
from workers.hosts.base import Collected, CollectedFile, HostError
from workers.hosts.units import os_errors

MAX_FILES = 1000
MAX_WARNINGS = 50
CHUNK_BYTES = 1 << 20
MAGIC = frozenset("*?[")

Tick = Callable[[], None]


def collect(patterns: Sequence[str], cwd: str, into: Path, limit_bytes: int, tick: Tick) -> Collected:
    """Copy every regular file that matches below `into`, which is emptied first.

    At most `limit_bytes` and 1000 files in all; what is left out, and every pattern without a match, is a warning.
    """
    root = Path(cwd)
    if not _is_folder(root):
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
        parts = [part for part in pattern.split("/") if part not in {"", "."}]
        start = root
        if pattern.startswith("/"):
            # A path that is named in full may lie anywhere; from its first wildcard on it is bound like any other.
            fixed = next((index for index, part in enumerate(parts) if MAGIC & set(part)), max(len(parts) - 1, 0))
            start, parts = Path("/", *parts[:fixed]), parts[fixed:]
        search = _Search(start.resolve(), self._tick, self.warnings)
        any_found = False
        for path in search.files(start, parts):
            any_found = True
            shown = str(path.relative_to(root) if path.is_relative_to(root) else path)
            if shown in self._seen:
                continue
            if len(self.files) >= MAX_FILES:
                self.warnings.append(f"{pattern}: more than {MAX_FILES} files in all; the rest is left out")
                return
            self._seen.add(shown)
            why = self._copy(path, shown, search)
            if why:
                self.warnings.append(f"{_printable(shown)} is left out: {why}")
        if not any_found:
            self.warnings.append(f"{pattern} matches no file")

    def _copy(self, path: Path, shown: str, search: _Search) -> str:
        """Copy one file; why not, otherwise."""
        real = Path(os.path.realpath(path))
        if not search.holds(real):
            return f"it is a link that leads out, to {_printable(str(real))}"
        if real.is_relative_to(self._into):
            return "it is a copy itself"
        try:
            # Not blocking: opening a pipe would wait for whoever writes to it.
            source = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            return error.strerror or str(error)
        status = os.fstat(source)
        if not stat.S_ISREG(status.st_mode):
            os.close(source)
            return "it is a link to a folder" if stat.S_ISDIR(status.st_mode) else "it is no regular file"
        with os.fdopen(source, "rb") as file:
            return self._copy_open(file, status.st_size, shown)

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
        self.files.append(CollectedFile(_printable(shown), size, digest))
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


class _Search:
    """Finds files by a pattern. A link that leads out of `home` is given as it is and not gone through."""

    def __init__(self, home: Path, tick: Tick, warnings: list[str]) -> None:
        self._home, self._tick, self._warnings = home, tick, warnings

    def holds(self, real: Path) -> bool:
        """Whether a path without links lies inside."""
        return real.is_relative_to(self._home)

    def files(self, start: Path, parts: list[str]) -> Iterator[Path]:
        """The files of a pattern, those of a matching folder included."""
        for path in self._expand(start, parts):
            yield from self._below(path) if self._may_enter(path) else (path,)

    def _may_enter(self, path: Path) -> bool:
        return _is_folder(path) and self.holds(Path(os.path.realpath(path)))

    def _expand(self, path: Path, parts: list[str]) -> Iterator[Path]:
        """The paths that the rest of a pattern finds from here."""
        if not parts:
            yield path
        elif not self._may_enter(path):
            if path.is_symlink():
                yield path  # for who copies to say why not
        elif parts[0] == "**":
            yield from self._any_depth(path, parts[1:])
        else:
            yield from self._one_level(path, parts[0], parts[1:])

    def _one_level(self, folder: Path, part: str, rest: list[str]) -> Iterator[Path]:
        if not MAGIC & set(part):
            if os.path.lexists(folder / part):
                yield from self._expand(folder / part, rest)
            return
        for name in self._names(folder):
            if fnmatch.fnmatchcase(name, part) and (part.startswith(".") or not name.startswith(".")):
                yield from self._expand(folder / name, rest)

    def _any_depth(self, folder: Path, rest: list[str]) -> Iterator[Path]:
        """`**`: this folder and every one below it. Hidden ones are left out, and links, which may lead round in a circle."""
        if not rest or rest[0] == "**":
            yield from self._expand(folder, rest)
            return
        yield from self._one_level(folder, rest[0], rest[1:])
        for name in self._names(folder):
            below = folder / name
            if not name.startswith(".") and _is_folder(below) and not below.is_symlink():
                yield from self._any_depth(below, rest)

    def _below(self, folder: Path) -> Iterator[Path]:
        """All that is in a folder; a link to another folder is one thing."""
        for name in self._names(folder):
            path = folder / name
            yield from self._below(path) if _is_folder(path) and not path.is_symlink() else (path,)

    def _names(self, folder: Path) -> list[str]:
        self._tick()
        try:
            return sorted(os.listdir(folder))  # noqa: PTH208 - names, not paths
        except OSError as error:
            self._warnings.append(f"{_printable(str(folder))} could not be looked into: {error.strerror}")
            return []


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except OSError:
        return False


def _printable(name: str) -> str:
    """A name of whatever bytes as text that can be stored."""
    return os.fsencode(name).decode("utf-8", "replace")
