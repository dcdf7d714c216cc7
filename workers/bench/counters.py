"""Joins requests with an engine's counters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from service.domain.conditions import change, conditions, generated, is_foreign
from service.domain.fairness import BUSY, FOREIGN
from service.domain.measurement import Conditions, RequestResult
from service.domain.request_speculation import DIFFERS, reconciled
from service.domain.speculation import EngineCounters, Speculation, speculation_between
from service.domain.speculation_pool import merge

SETTLE_S = 1.0
"""Engines update their counters slightly after a stream's end: how long to wait for it at most."""
_POLL_S = 0.05


class Counters(Protocol):
    """A blocking reader of an engine's counters; None where it gives none."""

    def __call__(self) -> EngineCounters | None:
        """Read them now."""


@dataclass(frozen=True)
class Asked:
    """What is known of the speculation that the server was started with; its counters alone cannot tell off from idle."""

    configured: bool | None = None
    """None: not known."""
    tokens: int | None = None
    """How long a draft is at most."""


class Span:
    """The counters around some requests. Without a reader it knows only what the answers say."""

    def __init__(self, counters: Counters | None, asked: Asked) -> None:
        self._counters = counters
        self._asked = asked
        self._before: EngineCounters | None = None
        self._after: EngineCounters | None = None

    @property
    def reads(self) -> bool:
        """Whether there are counters to read."""
        return self._counters is not None

    async def begin(self) -> None:
        """Read the counters before."""
        self._before = await self._read()

    async def end(self, results: Sequence[RequestResult]) -> Speculation | None:
        """What happened since `begin`, where exactly these requests ran; None where neither counters nor answers say anything.

        The counters' account is set beside that of the answers themselves, where the engine gives one.
        """
        told = merge(result.speculation if result.speculation and result.speculation.source == "usage" else None for result in results)
        told = told if told is not None and told.status != "unknown" else None
        if self._counters is None:
            return told
        self._after = await self._settled(generated(results))
        ok = sum(result.ok for result in results)
        asked = self._asked
        found = speculation_between(self._before, self._after, requests=ok, configured=asked.configured, speculative_tokens=asked.tokens)
        signs = {
            BUSY: self._before is not None and bool(self._before.running),
            FOREIGN: is_foreign(self._before, self._after, results),
            # Of requests that had the counters to themselves, theirs is the closer look.
            DIFFERS: any(result.speculation is not None and DIFFERS in result.speculation.warnings for result in results),
        }
        extra = [name for name, holds in signs.items() if holds]
        return reconciled(found.model_copy(update={"warnings": [*found.warnings, *extra]}) if extra else found, told)

    def conditions(self, results: Sequence[RequestResult], salt: Literal["sent", "refused", "given"]) -> Conditions:
        """How fair the requests between `begin` and `end` were served."""
        return conditions(self._before, self._after, results, salt)

    async def _read(self) -> EngineCounters | None:
        if self._counters is None:
            return None
        try:
            return await asyncio.to_thread(self._counters)
        except Exception as error:  # noqa: BLE001 - unread counters are reported as such; the measurement goes on
            import structlog  # noqa: PLC0415 - the toolbox verb starts faster without it

            structlog.get_logger(__name__).warning("counters could not be read", error=str(error))
            return None

    async def _settled(self, expected: int | None) -> EngineCounters | None:
        """The counters once they include all expected tokens, or no longer grow, or the time for it is over."""
        deadline = time.monotonic() + SETTLE_S
        now = await self._read()
        while now is not None and time.monotonic() < deadline:
            counted = change(self._before, now, "generation_tokens")
            if counted is None or (expected is not None and counted >= expected):
                break
            await asyncio.sleep(_POLL_S)
            later = await self._read()
            # Where the number to expect is unknown (a cut request), two equal readings have to do.
            still = expected is None and later is not None and later.generation_tokens == now.generation_tokens
            now = later
            if still:
                break
        return now
