"""Keep copies of files that a command has left on another host, piece by piece over short commands."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from service.domain.reasons import Reason
from workers.hosts import becoming, filescript, filesearch
from workers.hosts.base import Collected, CollectedFile, HostError
from workers.hosts.collecting import MAX_FILES, MAX_WARNINGS
from workers.hosts.looking import PYTHON, script_of
from workers.hosts.remote_causes import classify
from workers.hosts.transport import Transport
from workers.hosts.units import os_errors

PIECE_BYTES = 4 * 1024 * 1024
PIECE_S, SEARCH_S = 120.0, 300.0


@dataclass
class Fetch:
    """One collection from one host. `user`: whose files they are, in whose name root looks for them."""

    transport: Transport
    user: str | None
    into: Path
    limit_bytes: int
    tick: Callable[[], None]
    files: list[CollectedFile] = field(default_factory=list, init=False)
    warnings: list[str] = field(default_factory=list, init=False)

    def all(self, patterns: Sequence[str], cwd: str) -> Collected:
        """Copy every regular file that matches into the folder, which is emptied first. HostError where `cwd` is gone."""
        answer = json.loads(self._ask({"cwd": cwd, "patterns": list(patterns)}, SEARCH_S))
        if answer["gone"]:
            raise HostError(Reason.REMOTE_COMMAND_FAILED, f"no artifacts can be kept: the folder {cwd} is not there")
        self.warnings += [str(one) for one in answer["warnings"]]
        with os_errors():
            if self.into.exists():
                shutil.rmtree(self.into)
            self.into.mkdir(mode=0o700, parents=True)
            for shown, real, size in dict.fromkeys((str(shown), str(real), int(size)) for shown, real, size in answer["files"]):
                if len(self.files) >= MAX_FILES:
                    self.warnings.append(f"more than {MAX_FILES} files in all; the rest is left out")
                    break
                self._keep(shown, real, size)
        told = self.warnings[:MAX_WARNINGS]
        if len(self.warnings) > MAX_WARNINGS:
            told.append(f"and {len(self.warnings) - MAX_WARNINGS} more of these")
        return Collected(str(self.into), tuple(self.files), tuple(told))

    def _keep(self, shown: str, real: str, size: int) -> None:
        left = self.limit_bytes - sum(file.size for file in self.files)
        parts = PurePosixPath(shown.lstrip("/")).parts
        target = self.into.joinpath(*parts)
        if ".." in parts or not parts or "\0" in shown:
            self.warnings.append(f"{shown} is left out: it is no path below the folder")
        elif size > left:
            self.warnings.append(f"{shown} is left out: with its {size:,} bytes there would be more than {self.limit_bytes:,} in all")
        else:
            try:
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with target.open("xb") as out:
                    self.files.append(CollectedFile(shown, *self._copied(real, size, out)))
            except (FileExistsError, NotADirectoryError):
                self.warnings.append(f"{shown} is left out: another file is kept under that name")
            except HostError as error:
                if error.reason not in {Reason.REMOTE_COMMAND_FAILED, Reason.PERMISSION_DENIED}:
                    raise
                target.unlink(missing_ok=True)
                self.warnings.append(f"{shown} is left out: {error.evidence}")

    def _copied(self, real: str, size: int, out: BinaryIO) -> tuple[int, str]:
        """Size and checksum of the copy. No further than the size it had: somebody may still be writing to it."""
        digest, done = hashlib.sha256(), 0
        while done < size:
            self.tick()
            piece = self._ask({"real": real, "offset": done, "length": min(PIECE_BYTES, size - done)}, PIECE_S)
            if not piece:
                break
            out.write(piece)
            digest.update(piece)
            done += len(piece)
        return done, digest.hexdigest()

    def _ask(self, question: dict[str, Any], deadline_s: float) -> bytes:
        script = script_of(becoming.__file__, filesearch.__file__, filescript.__file__)
        stdin = json.dumps({**question, "user": self.user}).encode()
        done = self.transport.run([PYTHON, "-I", "-c", script], stdin=stdin, deadline_s=deadline_s, limit_bytes=4 * PIECE_BYTES)
        if done.ok and not done.truncated:
            return done.stdout
        said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][-300:]
        raise HostError(classify(done.stderr, done.exit_status) or Reason.REMOTE_COMMAND_FAILED, said or "the file could not be read")
