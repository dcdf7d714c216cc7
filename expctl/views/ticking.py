"""Clocks that go on between two answers of the server."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from service.domain.clock import span

LEFT = re.compile(r"\babout ((?:\d+ (?:h|min|s) ?)+) left \(p90 ((?:\d+ (?:h|min|s) ?)+)\)")
"""As `service.domain.eta_wording` says it."""
SECONDS = {"h": 3600, "min": 60, "s": 1}


class Ticking:
    """Experiments as the server last told of them, each with the moment at which it did."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: list[tuple[dict[str, Any], float]] = []

    def tell(self, items: Sequence[dict[str, Any]]) -> None:
        """Take in what the server says now. One that is the same object as before was not asked for again."""
        before = {id(item): moment for item, moment in self._told}
        now = self._clock()
        self._told = [(item, before.get(id(item), now)) for item in items]

    def now(self) -> list[dict[str, Any]]:
        """The same, with what is left by now."""
        moment = self._clock()
        return [item | {"eta_text": counted_down(str(item.get("eta_text") or ""), moment - told)} for item, told in self._told]


def counted_down(text: str, seconds: float) -> str:
    """What was left when it was said, less what has passed since. Other words stay."""
    return LEFT.sub(lambda said: f"about {_less(said[1], seconds)} left (p90 {_less(said[2], seconds)})", text)


def _less(said: str, seconds: float) -> str:
    words = said.split()
    whole = sum(int(number) * SECONDS[unit] for number, unit in zip(words[::2], words[1::2], strict=True))
    return span(whole - seconds)
