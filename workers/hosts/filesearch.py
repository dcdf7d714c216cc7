"""Find files by patterns, bounded, and never led astray by a symbolic link. Standard library only: hosts get this text as it is."""

from __future__ import annotations

import fnmatch
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

MAGIC = frozenset("*?[")

Tick = Callable[[], None]


def matches(root: Path, pattern: str, tick: Tick, warnings: list[str]) -> Iterator[tuple[Path, str, Search]]:
    """What one pattern finds, in order of name: each path, how it is shown, and the search that says where it may lead."""
    parts = [part for part in pattern.split("/") if part not in {"", "."}]
    start = root
    if pattern.startswith("/"):
        # A path that is named in full may lie anywhere; from its first wildcard on it is bound like any other.
        fixed = next((index for index, part in enumerate(parts) if MAGIC & set(part)), max(len(parts) - 1, 0))
        start, parts = Path("/", *parts[:fixed]), parts[fixed:]
    search = Search(start.resolve(), tick, warnings)
    for path in search.files(start, parts):
        yield path, str(path.relative_to(root) if path.is_relative_to(root) else path), search


def opened(path: Path, search: Search) -> tuple[int, int] | str:
    """A found file as a descriptor and its size; why not, otherwise."""
    real = Path(os.path.realpath(path))
    if not search.holds(real):
        return f"it is a link that leads out, to {printable(str(real))}"
    try:
        # Not blocking: opening a pipe would wait for whoever writes to it.
        source = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return error.strerror or str(error)
    status = os.fstat(source)
    if stat.S_ISREG(status.st_mode):
        return source, status.st_size
    os.close(source)
    return "it is a link to a folder" if stat.S_ISDIR(status.st_mode) else "it is no regular file"


class Search:
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
        return is_folder(path) and self.holds(Path(os.path.realpath(path)))

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
            if not name.startswith(".") and is_folder(below) and not below.is_symlink():
                yield from self._any_depth(below, rest)

    def _below(self, folder: Path) -> Iterator[Path]:
        """All that is in a folder; a link to another folder is one thing."""
        for name in self._names(folder):
            path = folder / name
            yield from self._below(path) if is_folder(path) and not path.is_symlink() else (path,)

    def _names(self, folder: Path) -> list[str]:
        self._tick()
        try:
            return sorted(os.listdir(folder))  # noqa: PTH208 - names, not paths
        except OSError as error:
            self._warnings.append(f"{printable(str(folder))} could not be looked into: {error.strerror}")
            return []


def is_folder(path: Path) -> bool:
    """Whether it is one, or a link to one."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except OSError:
        return False


def printable(name: str) -> str:
    """A name of whatever bytes as text that can be stored."""
    return os.fsencode(name).decode("utf-8", "replace")
