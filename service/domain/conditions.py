"""How fair a bench phase was, from the engine's counters around it and the requests' own figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from service.domain.fairness import BUSY, CACHE_HITS, CACHE_UNKNOWN, FOREIGN, RESTARTED
from service.domain.measurement import Conditions, RequestResult
from service.domain.speculation import EngineCounters, ratio, restarted

SLACK_TOKENS, SLACK_SHARE = 16, 0.02
"""More than this beyond ours is somebody else's: engines count a token or two a request that nobody sees."""
SLACK_PROMPT_TOKENS = 64
"""Chat templates and tokens that begin a text are counted by some servers' usage and not by others'."""
HITS_WARN = 0.01


def conditions(
    before: EngineCounters | None,
    after: EngineCounters | None,
    requests: Sequence[RequestResult],
    salt: Literal["sent", "refused", "given"] | None = None,
) -> Conditions:
    """What can be told; each figure is None where it is not known, which is no sign of fairness."""
    same = None if before is None or after is None else not restarted(before, after)
    foreign = _beyond(before, after, "generation_tokens", generated(requests)) if same else None
    prompts = _beyond(before, after, "prompt_tokens", _prompts(requests)) if same else None
    hits = _hit_rate(before, after, requests) if same is not False else None
    busy = None if before is None or before.running is None else before.running > 0
    signs = {
        RESTARTED: same is False,
        BUSY: bool(busy),
        FOREIGN: is_foreign(before, after, requests) if same else False,
        CACHE_HITS: hits is not None and hits >= HITS_WARN,
        CACHE_UNKNOWN: hits is None and salt != "sent",
    }
    return Conditions(
        cache_salt=salt,
        prefix_cache_hit_rate=hits,
        foreign_tokens=foreign,
        foreign_prompt_tokens=prompts,
        busy_at_start=busy,
        server_restarted=None if same is None else not same,
        warnings=[name for name, holds in signs.items() if holds],
    )


def is_foreign(before: EngineCounters | None, after: EngineCounters | None, requests: Sequence[RequestResult]) -> bool:
    """Whether the engine counted so much more than our requests that somebody else must have been served."""
    for name, ours, slack in (
        ("generation_tokens", generated(requests), SLACK_TOKENS),
        ("prompt_tokens", _prompts(requests), SLACK_PROMPT_TOKENS),
    ):
        more = _beyond(before, after, name, ours)
        if more is not None and ours is not None and more > ours * SLACK_SHARE + slack:
            return True
    return False


def generated(requests: Sequence[RequestResult]) -> int | None:
    """The tokens that the engine must have counted; unknown as soon as one request was cut or has no usage."""
    counts = [request.completion_tokens if request.ok else None for request in requests]
    return None if None in counts else sum(count or 0 for count in counts)


def _prompts(requests: Sequence[RequestResult]) -> int | None:
    counts = [request.prompt_tokens if request.ok else None for request in requests]
    return None if None in counts else sum(count or 0 for count in counts)


def change(before: EngineCounters | None, after: EngineCounters | None, name: str) -> float | None:
    """How much a counter grew; None where one of its readings is missing."""
    old, new = getattr(before, name, None), getattr(after, name, None)
    return None if old is None or new is None else new - old


def _beyond(before: EngineCounters | None, after: EngineCounters | None, name: str, ours: int | None) -> int | None:
    """What the engine counted more than ours. It never counts less of what was whole, but it may be late: no less than 0."""
    counted = change(before, after, name)
    return None if counted is None or ours is None else max(0, round(counted - ours))


def _hit_rate(before: EngineCounters | None, after: EngineCounters | None, requests: Sequence[RequestResult]) -> float | None:
    """From the engine's counters, else from what it told with each answer."""
    counted = ratio(change(before, after, "prefix_cache_hits"), change(before, after, "prefix_cache_queries"))
    if counted is not None:
        return counted
    pairs = [(request.cached_tokens, request.prompt_tokens) for request in requests if request.ok]
    known = [(cached, asked) for cached, asked in pairs if cached is not None and asked]
    return sum(cached for cached, _ in known) / sum(asked for _, asked in known) if known and len(known) == len(pairs) else None
