"""What is kept on disk of a unit of plain processes, and which processes belong to it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from service.domain.reasons import Reason
from workers.hosts.base import HostError, UnitDefinition
from workers.hosts.process import Process, all_processes, descendants, environment_value, read_process, same_process
from workers.hosts.supervise import MARKER, boot_id

UNIT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9@._-]{0,200}")
LOCK_POLL_S = 0.02


class _Kept(BaseModel):
    """A file that another version may have written: unknown keys are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class UnitRecord(_Kept):
    """`unit.json`. Without a pid: it was about to start."""

    name: str
    host: str | None = None
    """Under which name the host was registered whose unit this is; None where a version wrote it that did not note it."""
    invocation_id: str
    argv: tuple[str, ...]
    cwd: str | None
    env_digest: str
    log: str
    log_start: int
    """Where this invocation begins in the log."""
    boot_id: str
    pid: int | None
    start_ticks: int | None
    supervisor_pid: int
    supervisor_ticks: int

    @property
    def this_boot(self) -> bool:
        """False once the host was rebooted: every pid in the record is another's now."""
        return self.boot_id == boot_id()


class ExitRecord(_Kept):
    """`exit.json`: how the main process ended."""

    invocation_id: str
    exit_status: int | None
    signal: int | None
    drained: bool
    """True once no process of the unit was left."""


Kept = TypeVar("Kept", bound=_Kept)


class UnitFolder:
    """A unit's files."""

    def __init__(self, units: Path, name: str) -> None:
        if not UNIT_NAME.fullmatch(name):
            raise HostError(Reason.UNIT_SYNTAX, f"{name!r} is not the name of a unit")
        self.name = name
        self.path = units / name

    def record(self) -> UnitRecord | None:
        """`unit.json`, or None where the unit was never started here."""
        return _read(self.path / "unit.json", UnitRecord)

    def ending(self, record: UnitRecord) -> ExitRecord | None:
        """`exit.json` of that invocation, where it was written."""
        ending = _read(self.path / "exit.json", ExitRecord)
        return ending if ending is not None and ending.invocation_id == record.invocation_id else None

    @contextlib.contextmanager
    def locked(self, within_s: float) -> Iterator[int]:
        """Hold the unit's lock: one start or stop at a time, whoever asks. Gives the lock's descriptor."""
        with os_errors():
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not _take(lock, within_s):
                raise HostError(
                    Reason.REMOTE_COMMAND_FAILED, f"somebody else is starting or stopping {self.name} for over {within_s:.0f} s"
                )
            yield lock
        finally:
            os.close(lock)

    def wait_for_start(self, within_s: float) -> bool:
        """Wait until nobody is in the middle of starting the unit; False where somebody still is."""
        try:
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return True
        try:
            return _take(lock, within_s)
        finally:
            os.close(lock)


def _take(lock: int, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(LOCK_POLL_S)
        else:
            return True


def _read(path: Path, model: type[Kept]) -> Kept | None:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise HostError(Reason.INTERNAL_ERROR, f"{path} cannot be read: {error.errors()[0]['msg']}") from error


def env_digest(env: Mapping[str, str], invocation_id: str) -> str:
    """Tells whether two environments are equal without keeping either; salted by the invocation."""
    text = json.dumps([invocation_id, sorted(env.items())])
    return hashlib.sha256(text.encode()).hexdigest()


def difference(record: UnitRecord, definition: UnitDefinition) -> str:
    """What a running unit has otherwise than asked for; empty where nothing."""
    if record.argv != definition.argv:
        return f"it runs {' '.join(record.argv)}"
    if definition.cwd is not None and record.cwd != definition.cwd:
        return f"it runs in {record.cwd}, not in {definition.cwd}"
    if record.env_digest != env_digest(definition.env, record.invocation_id):
        return "it runs with another environment"
    return ""


def order_of(definition: UnitDefinition, host: str, invocation_id: str, log: Path, log_start: int) -> dict[str, Any]:
    """What the supervisor is told."""
    umask = os.umask(0o077)
    os.umask(umask)
    return {
        "name": definition.name,
        "host": host,
        "invocation_id": invocation_id,
        "argv": list(definition.argv),
        "cwd": definition.cwd or str(Path.cwd()),
        "env": dict(definition.env),
        "env_digest": env_digest(definition.env, invocation_id),
        "log": str(log),
        "log_start": log_start,
        "umask": umask,
    }


def members(record: UnitRecord | None, ending: ExitRecord | None, table: dict[int, Process]) -> list[Process]:
    """Every live process of a unit's last start, oldest first, the supervisor not counted.

    Three ways, since each has a gap: the marker in the environment (a program that sets its title may overwrite it), the
    session (a daemon leaves it), the supervisor's descendants (it may have been killed).
    """
    if record is None or not record.this_boot:
        return []
    marker = f"{record.name}:{record.invocation_id}"
    found = {pid: process for pid, process in table.items() if environment_value(pid, MARKER) == marker}
    if ending is None or not ending.drained:
        if record.pid is not None and _session_is_ours(record, table):
            found |= {pid: process for pid, process in table.items() if process.session == record.pid}
        if same_process(record.supervisor_pid, record.supervisor_ticks) is not None:
            found |= {process.pid: process for process in descendants(record.supervisor_pid, table)}
    found.pop(record.supervisor_pid, None)
    return sorted(found.values(), key=lambda process: (process.start_ticks, process.pid))


def _session_is_ours(record: UnitRecord, table: dict[int, Process]) -> bool:
    """The kernel keeps a session's number from reuse while the session has members, so only a new leader can be another's."""
    leader = table.get(record.pid or 0)
    return leader is None or leader.start_ticks == record.start_ticks


def main_by_marker(record: UnitRecord, table: dict[int, Process]) -> Process | None:
    """The main process of a start that was cut before its pid was written: it leads a session and carries the marker."""
    marker = f"{record.name}:{record.invocation_id}"
    return next((p for p in table.values() if p.session == p.pid and environment_value(p.pid, MARKER) == marker), None)


def unit_of(units: Path, pid: int) -> str | None:
    """The unit that a process belongs to; None where it belongs to none."""
    table = all_processes()
    names = sorted(entry.name for entry in units.iterdir()) if units.is_dir() else []
    marked = (environment_value(pid, MARKER) or "").rpartition(":")[0]
    # The marker only says where to look first; whoever is not in the unit's own record is not of the unit.
    for name in sorted(names, key=lambda name: name != marked):
        folder = UnitFolder(units, name)
        record = folder.record()
        ending = folder.ending(record) if record is not None else None
        if name != marked and ending is not None and ending.drained:
            continue  # of such a unit only processes with its marker are left, and there may be hundreds of them
        if any(process.pid == pid for process in members(record, ending, table)):
            return name
    return None


@contextlib.contextmanager
def os_errors() -> Iterator[None]:
    """Name the reason of an operating system's refusal."""
    try:
        yield
    except PermissionError as error:
        raise HostError(Reason.PERMISSION_DENIED, str(error)) from error
    except OSError as error:
        raise HostError(reason_of_errno(error.errno), str(error)) from error


def reason_of_errno(number: int | None) -> Reason:
    """disk_full where the disk or the quota is full, else that the command failed."""
    return Reason.DISK_FULL if number in {errno.ENOSPC, errno.EDQUOT} else Reason.REMOTE_COMMAND_FAILED


def reap(record: UnitRecord) -> None:
    """Where this process runs as a container's first one, orphans become its children, and a child must be waited for."""
    supervisor = read_process(record.supervisor_pid)
    # Nobody else's child with the same pid may lose its exit status here.
    if supervisor is not None and not supervisor.alive and supervisor.start_ticks == record.supervisor_ticks:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(supervisor.pid, os.WNOHANG)
