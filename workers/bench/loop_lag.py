"""How late the client's own event loop runs: what the client may have added to its numbers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from types import TracebackType
from typing import Self

from service.domain.statistics import percentile

_EVERY_S = 0.01


class LoopLag:
    """Samples while it is open."""

    def __init__(self) -> None:
        self._late_ms: list[float] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._sample())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _sample(self) -> None:
        while True:
            due = time.perf_counter() + _EVERY_S
            await asyncio.sleep(_EVERY_S)
            self._late_ms.append(max(0.0, time.perf_counter() - due) * 1000)

    @property
    def max_ms(self) -> float | None:
        """The worst; None before the first sample."""
        return max(self._late_ms, default=None)

    @property
    def p99_ms(self) -> float | None:
        """99th percentile; None before the first sample."""
        return percentile(sorted(self._late_ms), 0.99) if self._late_ms else None
