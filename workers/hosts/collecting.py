"""Keep copies of files that a command has made: by patterns, bounded, and never led astray by a symbolic link."""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from service.domain.reasons import Reason
from workers.hosts.base import Collected, CollectedFile, HostError
from workers.hosts.units import os_errors

MAX_FILES = 1000
CHUNK_BYTES = 1 << 20
MAGIC = frozenset("*?[")

Tick = Callable[[], None]


def collect(patterns: Sequence[str], cwd: str, into: Path, limit_bytes: int, tick: Tick) -> Collected:
    """Copy every regular file that matches below `into`, which is emptied first.

    At most `limit_bytes` and 1000 files in all; what is left out, and every pattern without a match, is a warning.
    """
    root = Path(cwd)
    if not root.is_dir():
        raise HostError(Reason.REMOTE_COMMAND_FAILED, f"no artifacts can be kept: the folder {cwd} is not there")
    with os_errors():
        if into.exists():
            shutil.rmtree(into)
        into.mkdir(mode=0o700, parents=True)
        work = _Work(root, into.resolve(), limit_bytes, tick)
        for pattern in patterns:
            work.keep(pattern)
    return Collected(str(into), tuple(work.files), tuple(work.warnings))


@dataclass(frozen=True)
class _Found:
    """A file, what it is called where it was found, and the folder that it may not lie outside of."""

    path: Path
    shown: str
    home: Path


class _Work:
    """One collection under way."""

    def __init__(self, root: Path, into: Path, limit_bytes: int, tick: Tick) -> None:
        self._root, self._into, self._left, self._limit, self._tick = root, into, limit_bytes, limit_bytes, tick
        self._seen: set[str] = set()
        self.files: list[CollectedFile] = []
        self.warnings: list[str] = []

    def keep(self, pattern: str) -> None:
        """Keep all that one pattern finds."""
        any_found = False
        for found in self._matches(pattern):
            any_found = True
            if found.shown in self._seen:
                continue
            self._seen.add(found.shown)
            if len(self.files) >= MAX_FILES:
                self.warnings.append(f"{pattern}: more than {MAX_FILES} files; the rest is left out")
                return
            why = self._copy(found)
            if why:
                self.warnings.append(f"{_printable(found.shown)} is left out: {why}")
        if not any_found:
            self.warnings.append(f"{pattern} matches no file")

    def _matches(self, pattern: str) -> Iterator[_Found]:
        """The files of a pattern in order of name, those of a matching folder included."""
        parts = [part for part in pattern.split("/") if part not in {"", "."}]
        start = self._root
        if pattern.startswith("/"):
            # A path that is named in full may lie anywhere; from its first wildcard on it is bound like any other.
            fixed = next((index for index, part in enumerate(parts) if MAGIC & set(part)), len(parts) - 1)
            start, parts = Path("/", *parts[:fixed]), parts[fixed:]
        home = start.resolve()
        for path in _expand(start, parts, self._tick):
            for file in _files_in(path, self._tick):
                inside = file.is_relative_to(self._root)
                yield _Found(file, str(file.relative_to(self._root) if inside else file), home)

    def _copy(self, found: _Found) -> str:
        """Copy one file; why not, otherwise."""
        real = Path(os.path.realpath(found.path))
        if not real.is_relative_to(found.home):
            return f"it is a link that leads out, to {_printable(str(real))}"
        if real.is_relative_to(self._into):
            return "it is a copy itself"
        try:
            # Not blocking: opening a pipe would wait for whoever writes to it.
            source = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            return error.strerror or str(error)
        with os.fdopen(source, "rb") as file:
            status = os.fstat(source)
            if not stat.S_ISREG(status.st_mode):
                return "it is no regular file"
            if status.st_size > self._left:
                return f"with its {status.st_size:,} bytes there would be more than {self._limit:,} in all"
            target = self._into / found.shown.lstrip("/")
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Read no further than the size it had: somebody may still be writing to it.
            size, digest = _write(file.read, target, status.st_size, self._tick)
        self._left -= size
        self.files.append(CollectedFile(_printable(found.shown), size, digest))
        return ""


def _write(read: Callable[[int], bytes], target: Path, size: int, tick: Tick) -> tuple[int, str]:
    digest = hashlib.sha256()
    left = size
    with target.open("xb") as out:
        while left and (chunk := read(min(CHUNK_BYTES, left))):
            tick()
            out.write(chunk)
            digest.update(chunk)
            left -= len(chunk)
    return size - left, digest.hexdigest()


def _expand(folder: Path, parts: list[str], tick: Tick) -> Iterator[Path]:
    """The paths that the rest of a pattern finds below a folder."""
    tick()
    if not parts:
        yield folder
        return
    part, rest = parts[0], parts[1:]
    if part == "**":
        yield from _expand_any_depth(folder, rest, tick)
    elif not MAGIC & set(part):
        if os.path.lexists(folder / part):
            yield from _expand(folder / part, rest, tick)
    else:
        for name in _names(folder):
            if fnmatch.fnmatchcase(name, part) and (part.startswith(".") or not name.startswith(".")):
                yield from _expand(folder / name, rest, tick)


def _expand_any_depth(folder: Path, rest: list[str], tick: Tick) -> Iterator[Path]:
    """`**`: this folder and every one below it, hidden ones and links left out: a link may lead round in a circle."""
    yield from _expand(folder, rest or ["*"], tick)
    for name in _names(folder):
        below = folder / name
        if not name.startswith(".") and below.is_dir() and not below.is_symlink():
            yield from _expand_any_depth(below, rest, tick)


def _files_in(path: Path, tick: Tick) -> Iterator[Path]:
    """The path itself, or where it is a folder, all that is in it. A link to a folder is one thing, looked at by who copies."""
    if path.is_symlink() or not path.is_dir():
        yield path
        return
    tick()
    for name in _names(path):
        yield from _files_in(path / name, tick)


def _names(folder: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return sorted(os.listdir(folder))  # noqa: PTH208 - names, not paths
    return []


def _printable(name: str) -> str:
    """A name of whatever bytes as text that can be stored."""
    return os.fsencode(name).decode("utf-8", "replace")
