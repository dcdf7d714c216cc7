"""The smallest parent an engine can have: starts it, waits for it, writes down how it ended.

Run as a file by `python -I -S supervise.py STATE_DIR LOCK_FD` with the order as JSON on stdin, so it may import the standard
library only. It forks once and lets its first process end as soon as the engine runs, so that the worker that asked is nobody's
parent and may be killed at any time.

* `unit.json`: what was started, with pid and start time. Written before the engine starts (no pid yet) and again after.
* `exit.json`: how it ended, and `drained` once no process of it is left.

LOCK_FD is an open lock that whoever starts or stops the unit holds. It is let go only once `unit.json` has the pid: a worker that
dies in between cannot make the next one miss the engine.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

MARKER = "EXPCTL_UNIT"
"""Environment variable of every process of a unit: <unit>:<invocation>."""

PR_SET_CHILD_SUBREAPER = 36


def write_json(path: Path, value: Any) -> None:
    """Write so that a reader, also after a power cut, sees the old content or the new, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def start_ticks(pid: int | str) -> int:
    """Start time of a process in clock ticks since boot: with the pid it names one process for good."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return int(stat.rpartition(")")[2].split()[19])


def boot_id() -> str:
    """Tells one boot from another."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that none of them gets out of sight."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError):
        return  # then the session and the marker still find them


def stand_alone() -> None:
    """Leave the worker's session and streams, and outlive the signals that are meant for it."""
    os.setsid()
    os.umask(0o077)
    adopt_orphans()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # A handler, not SIG_IGN: what is ignored here would be ignored in the engine too.
        signal.signal(number, lambda *_: None)


def start(order: dict[str, Any]) -> subprocess.Popen[bytes]:
    """The engine: a session of its own, no input, both outputs appended to the log."""
    environment = {**os.environ, **order["env"], MARKER: f"{order['name']}:{order['invocation_id']}"}
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(  # noqa: S603 - running what the experiment says is the purpose
            order["argv"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=order["cwd"],
            env=environment,
            start_new_session=True,
            umask=order["umask"],
        )
    finally:
        os.close(log)


def record_of(order: dict[str, Any]) -> dict[str, Any]:
    """What `unit.json` says before the engine runs. The environment may hold secrets and is left out."""
    kept = {key: value for key, value in order.items() if key not in {"env", "umask"}}
    return {
        **kept,
        "pid": None,
        "start_ticks": None,
        "boot_id": boot_id(),
        "supervisor_pid": os.getpid(),
        "supervisor_ticks": start_ticks("self"),
    }


def watch(state: Path, invocation_id: str, main_pid: int) -> None:
    """Wait for every descendant; write down how the main one ended, and then that all are gone."""
    ended: dict[str, Any] = {"invocation_id": invocation_id, "exit_status": None, "signal": None, "drained": False}
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            break
        if pid == main_pid:
            code = os.waitstatus_to_exitcode(status)
            ended["signal" if code < 0 else "exit_status"] = abs(code)
            write_json(state / "exit.json", ended)
    write_json(state / "exit.json", {**ended, "drained": True})


def supervise(state: Path, lock: int, order: dict[str, Any], report: int) -> None:
    """The second process: start, report to the first one, watch."""
    stand_alone()
    record = record_of(order)
    write_json(state / "unit.json", record)
    try:
        engine = start(order)
    except OSError as error:
        # The shell's numbers: 127 not found, 126 found but not executable.
        status = 127 if error.errno == errno.ENOENT else 126
        write_json(state / "exit.json", {"invocation_id": order["invocation_id"], "exit_status": status, "signal": None, "drained": True})
        answer = {"ok": False, "errno": error.errno, "error": f"{error.filename or order['argv'][0]}: {error.strerror}"}
        os.write(report, json.dumps(answer).encode())
        return
    write_json(state / "unit.json", {**record, "pid": engine.pid, "start_ticks": start_ticks(engine.pid)})
    os.close(lock)
    os.write(report, b'{"ok": true}')
    os.close(report)
    os.chdir("/")  # keep no folder busy
    watch(state, order["invocation_id"], engine.pid)


def main() -> NoReturn:
    """Fork; the first process passes the second one's report on and ends."""
    state, lock = Path(sys.argv[1]), int(sys.argv[2])
    order = json.load(sys.stdin)
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(reading)
        try:
            supervise(state, lock, order, writing)
        except BaseException as error:  # noqa: BLE001 - nobody is left to catch it; the report is the only way out
            try:
                os.write(writing, json.dumps({"ok": False, "errno": getattr(error, "errno", None), "error": repr(error)}).encode())
            except OSError:
                os._exit(3)
            os._exit(2)
        os._exit(0)
    os.close(writing)
    os.close(lock)
    with os.fdopen(reading, "rb") as pipe:
        sys.stdout.write(pipe.read().decode())
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
