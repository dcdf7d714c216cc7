"""Start a unit of plain processes: the supervisor's beginning, seen from the worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from typing import Any

from service.domain.reasons import Reason
from workers.hosts import supervise
from workers.hosts.base import HostError, UnitDefinition
from workers.hosts.units import UnitFolder, order_of, reason_of_errno

OWN_SETTINGS = "EXPCTL_"
"""Variables of the worker itself, its token among them: not the engine's business."""


def spawn(folder: UnitFolder, definition: UnitDefinition, host: str, lock: int, timeout_s: float) -> None:
    """Start the supervisor, which starts that host's unit, keeps hold of the lock until it has said so, and stays with it."""
    log = folder.path / "log"
    log_start = log.stat().st_size if log.exists() else 0
    order = order_of(definition, host, uuid.uuid4().hex, log, log_start)
    command = [sys.executable, "-I", "-S", supervise.__file__, str(folder.path), str(lock)]
    try:
        done = subprocess.run(  # noqa: S603 - our own file
            command,
            input=json.dumps(order).encode(),
            capture_output=True,
            timeout=timeout_s,
            check=False,
            env={key: value for key, value in os.environ.items() if not key.startswith(OWN_SETTINGS)},
            pass_fds=(lock,),
            start_new_session=True,
        )
    except subprocess.TimeoutExpired as error:
        raise HostError(Reason.REMOTE_COMMAND_FAILED, f"{definition.name} was not started within {timeout_s:.0f} s") from error
    _check_report(done.stdout, done.stderr)


def _check_report(out: bytes, err: bytes) -> None:
    try:
        report: dict[str, Any] = json.loads(out)
    except ValueError as error:
        said = err.decode("utf-8", "replace").strip()[-500:]
        raise HostError(Reason.REMOTE_COMMAND_FAILED, f"the supervisor did not report; it said: {said}") from error
    if not report["ok"]:
        full = reason_of_errno(report.get("errno"))
        raise HostError(full if full == Reason.DISK_FULL else Reason.EXEC_FAILED, str(report["error"]))
