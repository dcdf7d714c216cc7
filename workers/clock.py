"""Real time, which can be interrupted."""

from __future__ import annotations

import threading
import time


class SystemClock:
    """The machine's monotonic clock. Waits end early once `stop` is set."""

    def __init__(self, stop: threading.Event | None = None) -> None:
        self._stop = stop or threading.Event()

    def monotonic(self) -> float:
        """Seconds that only grow."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self._stop.wait(seconds)
