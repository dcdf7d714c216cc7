"""Running systemctl and journalctl: no shell, a fixed environment, a deadline, and only so much output."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workers.hosts.helper.refusals import REMOTE_COMMAND_FAILED, Refused

ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": "cat"}
DEADLINE_S = 15.0
OUTPUT_BYTES = 4 * 1_048_576


@dataclass(frozen=True)
class Ran:
    """How a program ended: its exit status (negative: the signal), and what it printed."""

    status: int
    out: str
    err: str


def run(argv: Sequence[str], deadline_s: float = DEADLINE_S) -> Ran:
    """Run a program to its end. Refused where it does not end in time or prints more than anybody wants."""
    # Cut off with its children: a hanging systemctl may have started an agent.
    with subprocess.Popen(  # noqa: S603 - an absolute path and words, no shell
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT, cwd="/", start_new_session=True
    ) as process:
        try:
            out, err = _drained(process, argv, time.monotonic() + deadline_s)
        except BaseException:
            end(process)
            raise
    return Ran(process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a program that is no longer wanted, and its children."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _drained(process: subprocess.Popen[bytes], argv: Sequence[str], deadline: float) -> tuple[bytes, bytes]:
    pieces: dict[Any, bytearray] = {process.stdout: bytearray(), process.stderr: bytearray()}
    with selectors.DefaultSelector() as waiting:
        for stream in pieces:
            waiting.register(stream, selectors.EVENT_READ)
        while waiting.get_map():
            for key, _ in waiting.select(max(0.0, deadline - time.monotonic())):
                piece = os.read(key.fd, 65_536)
                pieces[key.fileobj] += piece
                if not piece:
                    waiting.unregister(key.fileobj)
            if time.monotonic() > deadline:
                raise Refused(REMOTE_COMMAND_FAILED, f"{' '.join(argv)[:300]} did not end in time")
            if sum(map(len, pieces.values())) > OUTPUT_BYTES:
                raise Refused(REMOTE_COMMAND_FAILED, f"{' '.join(argv)[:300]} printed more than {OUTPUT_BYTES} bytes")
    try:
        process.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise Refused(REMOTE_COMMAND_FAILED, f"{' '.join(argv)[:300]} did not end in time") from None
    return bytes(pieces[process.stdout]), bytes(pieces[process.stderr])
