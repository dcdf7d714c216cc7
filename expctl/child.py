"""One process of the embedded service: forked from `up`, and started again when it ends by itself.

Imports are most of what a start costs. A forked process has those of `up`, and shares their memory with it. What makes that safe: `up`
has one thread and no open connection whenever it forks.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from service.domain.errors import ExpctlError

BACKOFF_S = (0.5, 1.0, 2.0, 5.0, 15.0)
WELL_S = BACKOFF_S[-1]
"""A child that lived longer than the longest pause was well: when it ends, that is the first time again."""
STOPPING = {signal.SIGTERM, signal.SIGINT}


@dataclass
class Child:
    """A process and its restarts."""

    name: str
    launch: Callable[[], BaseProcess]
    clock: Callable[[], float] = time.monotonic
    process: BaseProcess | None = None
    _ends: int = 0
    """How often it ended without having been well before."""
    _began: float = 0.0
    _due: float = 0.0

    def start(self) -> None:
        """Start it now."""
        self._began = self.clock()
        self.process = self.launch()

    def tend(self) -> None:
        """Start it again where it has ended, after a pause that grows each time."""
        if self.process is None:
            if self.clock() >= self._due:
                self.start()
        elif not self.process.is_alive():
            self.process.close()
            self.process = None
            now = self.clock()
            self._ends = 1 if now - self._began > WELL_S else self._ends + 1
            self._due = now + BACKOFF_S[min(self._ends, len(BACKOFF_S)) - 1]


class Leash:
    """A pipe that `up` holds one end of and its children the other: it ends when `up` ends, however that happens."""

    def __init__(self) -> None:
        self._children, self._up = os.pipe()

    def follow(self) -> None:
        """In a child: let go of the end of `up`, and take the end of the leash for a TERM."""
        os.close(self._up)
        threading.Thread(target=self._wait, name="parent", daemon=True).start()

    def _wait(self) -> None:
        # Nobody ever writes to it.
        while os.read(self._children, 1):
            continue
        os.kill(os.getpid(), signal.SIGTERM)

    def close(self) -> None:
        """In `up`: its children leave."""
        os.close(self._up)
        os.close(self._children)


def fork(name: str, run: Callable[[], None], log: Path, settle: Callable[[], None]) -> BaseProcess:
    """A process that calls `settle`, which gives up what belongs to `up` alone, and then `run`; it writes to `log`."""

    def live() -> None:
        # A session of its own, so that Ctrl-C in the terminal reaches `up` alone, which ends its children in order.
        os.setsid()
        for number in STOPPING:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        settle()
        with log.open("ab") as file:
            os.dup2(file.fileno(), sys.stdout.fileno())
            os.dup2(file.fileno(), sys.stderr.fileno())
        Path("/proc/self/comm").write_text(f"expctl {name}")  # its command line is that of `up`
        try:
            run()
        except ExpctlError as error:
            sys.exit("\n  ".join([f"error: {error.lines()[0]}", *error.lines()[1:]]))

    process = multiprocessing.get_context("fork").Process(target=live, name=name)
    # A TERM that came before the child has forgotten the handlers of `up` would be lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    return process
