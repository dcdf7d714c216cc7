"""Joins requests with an engine's counters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

import structlog

from service.domain.measurement import RequestResult
from service.domain.speculation import EngineCounters, Speculation, speculation_between

SETTLE_S = 1.0
"""Engines update their counters slightly after a stream's end: how long to wait for it at most."""
_POLL_S = 0.05
_SLACK_TOKENS, _SLACK_SHARE = 16, 0.02
_log = structlog.get_logger(__name__)


class Counters(Protocol):
    """A blocking reader of an engine's counters; None where it gives none."""

    def __call__(self) -> EngineCounters | None:
        """Read them now."""


class Span:
    """The counters around some requests. Without a reader it does nothing."""

    def __init__(self, counters: Counters | None) -> None:
        self._counters = counters
        self._before: EngineCounters | None = None

    async def begin(self) -> None:
        """Read the counters before."""
        self._before = await self._read()

    async def end(self, results: Sequence[RequestResult]) -> Speculation | None:
        """What happened since `begin`, where exactly these requests ran; None without a reader."""
        if self._counters is None:
            return None
        expected = _tokens(results)
        after = await self._settled(expected)
        ok = sum(result.ok for result in results)
        found = speculation_between(self._before, after, requests=ok)
        extra = _foreign(self._before, after, expected)
        return found.model_copy(update={"warnings": [*found.warnings, *extra]}) if extra else found

    async def _read(self) -> EngineCounters | None:
        if self._counters is None:
            return None
        try:
            return await asyncio.to_thread(self._counters)
        except Exception as error:  # noqa: BLE001 - unread counters are reported as such; the measurement goes on
            _log.warning("counters could not be read", error=str(error))
            return None

    async def _settled(self, expected: int | None) -> EngineCounters | None:
        """The counters once they include all expected tokens, or no longer grow, or the time for it is over."""
        deadline = time.monotonic() + SETTLE_S
        now = await self._read()
        while now is not None and time.monotonic() < deadline:
            generated = _generated(self._before, now)
            if generated is None or (expected is not None and generated >= expected):
                break
            await asyncio.sleep(_POLL_S)
            later = await self._read()
            # Where the number to expect is unknown (a cut request), two equal readings have to do.
            still = expected is None and later is not None and later.generation_tokens == now.generation_tokens
            now = later
            if still:
                break
        return now


def _generated(before: EngineCounters | None, after: EngineCounters | None) -> float | None:
    if before is None or after is None or before.generation_tokens is None or after.generation_tokens is None:
        return None
    return after.generation_tokens - before.generation_tokens


def _tokens(results: Sequence[RequestResult]) -> int | None:
    """The tokens that the engine must have counted; unknown as soon as one request was cut or has no usage."""
    counts = [result.completion_tokens if result.ok else None for result in results]
    return None if None in counts else sum(count or 0 for count in counts)


def _foreign(before: EngineCounters | None, after: EngineCounters | None, expected: int | None) -> list[str]:
    """Signs that somebody else used the engine meanwhile, which falsifies every number."""
    found = []
    if before is not None and before.running:
        found.append("busy_at_start")
    generated = _generated(before, after)
    if expected is not None and generated is not None and generated > expected * (1 + _SLACK_SHARE) + _SLACK_TOKENS:
        found.append("other_requests_seen")
    return found
