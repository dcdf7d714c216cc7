"""Waiting for a condition."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class NotTrue(AssertionError):
    """A condition did not come true in time."""


def wait_for(look: Callable[[], T], seconds: float = 30.0, what: object = None, every: float = 0.02) -> T:
    """The first true answer of `look`. NotTrue says what was waited for; `what` may be a function that says it then."""
    tick = threading.Event()
    end = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > end:
            said = what() if callable(what) else what
            raise NotTrue(f"not true within {seconds} s: {said or look}")
        tick.wait(every)
