"""Files that root trusts: what may be read, and how it is written so that a power cut leaves the old or the new."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from workers.hosts.helper.refusals import PERMISSION_DENIED, REMOTE_COMMAND_FAILED, Refused
from workers.hosts.helper.request import LIMIT_BYTES

OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def read_ours(path: Path) -> bytes | None:
    """A file of ours, None where there is none. Refused where another than root could have written it, or it is a link."""
    check_ours(path.parent)
    try:
        # Without O_NONBLOCK a pipe of that name would keep us waiting.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Refused(PERMISSION_DENIED, f"{path} cannot be trusted: {error.strerror}") from error
    return _read_checked(descriptor, path)


def read_admins(path: Path) -> str:
    """A file that systemd reads as root, such as a unit's. It may be a link, but must be root's in the end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise Refused(REMOTE_COMMAND_FAILED, f"{path} cannot be read: {error.strerror}") from error
    try:
        return _read_checked(descriptor, path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Refused(REMOTE_COMMAND_FAILED, f"{path} is not UTF-8") from None


def _read_checked(descriptor: int, path: Path) -> bytes:
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise Refused(PERMISSION_DENIED, f"{path} is not a regular file")
        if found.st_uid != os.geteuid() or found.st_mode & OTHERS_MAY_WRITE:
            raise Refused(PERMISSION_DENIED, f"{path} must be root's, and nobody else may be able to write it")
        content = file.read(LIMIT_BYTES + 1)
    if len(content) > LIMIT_BYTES:
        raise Refused(PERMISSION_DENIED, f"{path} is longer than {LIMIT_BYTES} bytes")
    return content


def check_ours(path: Path) -> None:
    """Refuse a folder that another than root could put something into, or a link in its place. One that is missing is none."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & OTHERS_MAY_WRITE:
        raise Refused(PERMISSION_DENIED, f"{path} must be a folder of root's that nobody else may be able to write to")


def make_folder(path: Path) -> None:
    """A folder that only root sees, made where it is missing."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_ours(path)


def write_ours(path: Path, content: str, mode: int = 0o600) -> None:
    """Put a file there in one step. What stood there, a link too, is replaced and never written through."""
    check_ours(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with contextlib.suppress(FileNotFoundError):  # of a predecessor with our pid that was cut off
        temporary.unlink()
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            os.fchmod(file.fileno(), mode)  # whatever the umask
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a write does not say itself whose disk is full
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def remove(path: Path) -> bool:
    """Take a file away; False where there was none."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    _sync_folder(path.parent)
    return True


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def locked(path: Path, within_s: float) -> Iterator[None]:
    """Hold a lock. The kernel lets go of it when this process ends, however it ends. Refused where another holds it for longer."""
    make_folder(path.parent)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + within_s
    try:
        while not _taken(descriptor):
            if time.monotonic() > deadline:
                raise Refused(REMOTE_COMMAND_FAILED, f"another call of expctl-host has been at work for over {within_s:.0f} s", busy=True)
            time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
