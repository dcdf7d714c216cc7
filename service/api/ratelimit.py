"""How much one caller may ask for. Kept in this process: with several of the API, each allows as much."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from service.domain.errors import Throttled

MOST_KEYS = 10_000
"""Callers that are remembered; whoever has been quiet the longest is forgotten first."""


@dataclass
class Buckets:
    """A token bucket a caller: `burst` at once, and `per_minute` in the long run. 0 per minute: no limit."""

    per_minute: float
    burst: int
    clock: Callable[[], float] = time.monotonic
    _left: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def wait(self, key: str) -> float:
        """0 where one more is allowed, else the seconds until it will be."""
        if self.per_minute <= 0:
            return 0.0
        return max(0.0, 1.0 - self._now(key)) * 60 / self.per_minute

    def take(self, key: str) -> float:
        """Take one, if it is allowed; gives the same."""
        wait = self.wait(key)
        if not wait and self.per_minute > 0:
            left = self._now(key) - 1
            self._left.pop(key, None)
            self._left[key] = (left, self.clock())
            if len(self._left) > MOST_KEYS:
                self._left.popitem(last=False)
        return wait

    def _now(self, key: str) -> float:
        """How many a caller has left."""
        left, at = self._left.get(key, (float(self.burst), 0.0))
        return min(float(self.burst), left + (self.clock() - at) * self.per_minute / 60)


@dataclass
class Streams:
    """How many streams a caller has open at once. 0: no limit."""

    most: int
    _open: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def one(self, key: str) -> Iterator[None]:
        """While a stream is open; Throttled where the caller has too many."""
        if 0 < self.most <= self._open[key]:
            raise throttled(f"{self._open[key]} streams are open with this token", 5.0, "end one, or use another token")
        self._open[key] += 1
        try:
            yield
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]


def throttled(why: str, retry_after_s: float, todo: str = "") -> Throttled:
    """The refusal, with when to come back."""
    error = Throttled("too many requests", why, todo or f"try again in {retry_after_s:.0f} s")
    error.retry_after_s = retry_after_s
    return error
