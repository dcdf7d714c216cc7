"""A thread that does one thing again and again beside the work, and ends with it."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self


class Beat:
    """`with` runs `beat` every so many seconds in a thread of its own, until it says that it is over."""

    def __init__(self, name: str, every_s: float) -> None:
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def beat(self) -> bool:
        """Do it once; False where it is over."""
        raise NotImplementedError

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            if not self.beat():
                return

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(timeout=self._every_s + 30)
