"""Speculative decoding in numbers: the engine's counters, and what the change between two readings says.

Formulas (names as in vLLM's metrics; `d` is the change of a counter over the measured span):

* mean acceptance length = 1 + d(accepted) / d(drafts), the token the target model adds included;
* draft acceptance rate = d(accepted) / d(draft tokens), 0..1;
* per-position acceptance i = d(accepted at i) / d(drafts), unconditional;
* effective tokens per step = d(generated) / (d(generated) - d(accepted)): every decode step emits one token of
  the target's own plus the accepted ones, so steps = generated - accepted;
* draft coverage = d(drafts) / (d(generated) - d(accepted)), the share of steps that had a draft.

The acceptance formulas are those of vLLM's own `SpecDecodingLogging` and of `vllm bench serve`. The last two are ours: a
drafter such as n-gram has steps without any draft, which the acceptance length leaves out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from service.domain.records import Record

SpeculationStatus = Literal["on", "off", "never_drafted", "not_reported", "unknown"]


class EngineCounters(Record):
    """One reading of an engine's counters, summed over its engines (data-parallel ranks).

    `drafts` and its fellows are None where the engine registers no speculation counters: speculation is off, or this
    engine does not report it. `per_engine` keeps the same counters a rank.
    """

    engine: str
    """Which engine's names were found: vllm, vllm_v0, sglang, llamacpp."""
    generation_tokens: float | None = None
    prompt_tokens: float | None = None
    running: float | None = None
    """Requests in flight at the moment of the reading (a gauge)."""
    prefix_cache_queries: float | None = None
    prefix_cache_hits: float | None = None
    drafts: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    accepted_per_position: list[float] | None = None
    per_engine: dict[str, dict[str, float]] = Field(default_factory=dict)
    process_start: float | None = None
    """process_start_time_seconds where exposed: a change means that another process answers."""


class Speculation(Record):
    """What speculation did over one span. `status` tells off, idle and unreported apart; none of them is 0."""

    status: SpeculationStatus
    source: Literal["prometheus", "log", "usage"] | None = None
    drafts: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    mean_acceptance_length: float | None = None
    draft_acceptance_rate: float | None = None
    per_position_acceptance: list[float] | None = None
    effective_tokens_per_step: float | None = None
    draft_coverage: float | None = None
    per_engine: dict[str, Any] = Field(default_factory=dict)
    comparable: bool = True
    warnings: list[str] = Field(default_factory=list)


_COUNTS = ("drafts", "draft_tokens", "accepted_tokens")
_V0 = "vllm_v0"


def speculation_between(
    before: EngineCounters | None,
    after: EngineCounters | None,
    *,
    requests: int | None = None,
    configured: bool | None = None,
) -> Speculation:
    """What speculation did between two readings of one engine's counters.

    `requests`: how many requests ran from start to end within the span. The first token of each comes from its prefill,
    not from a decode step, so generated = d(generation_tokens) - requests, and

        steps = max(generated - d(accepted), d(drafts))

    It is an approximation: accepted tokens behind a stop or a length limit are counted but not emitted, which makes the
    difference too small by up to k a request; d(drafts) bounds it from below, for every draft took a step. Requests that
    were cut, or cross the span's edges, blur it further. Without `requests` nothing is subtracted and steps come out one
    a request too many.

    `configured`: whether the experiment asks for speculation. llama.cpp shows the counters, at 0, also when it is off; and a
    vLLM that was asked for it but shows none is worth a warning.
    """
    if before is None or after is None:
        return Speculation(status="not_reported", warnings=["counters_not_read"])
    broken = _broken(before, after)
    if broken:
        return Speculation(status="unknown", source="prometheus", warnings=[broken])
    if after.draft_tokens is None and after.drafts is None:
        return _no_series(after, configured)
    found = _change(before, after, requests)
    if found.status == "never_drafted" and configured is False:
        return found.model_copy(update={"status": "off"})
    return found


def _broken(before: EngineCounters, after: EngineCounters) -> str | None:
    """Why the two readings have no difference, as a warning; None where they have."""
    if _restarted(before, after):
        return "counter_reset"
    if before.per_engine and after.per_engine and before.per_engine.keys() != after.per_engine.keys():
        return "engines_changed"
    if any(getattr(before, name) is None and getattr(after, name) is not None for name in _COUNTS):
        return "counters_appeared"
    return None


def _restarted(before: EngineCounters, after: EngineCounters) -> bool:
    """Whether another process answered the second time: its start time differs, or a counter fell or vanished."""
    if before.process_start is not None and after.process_start is not None and before.process_start != after.process_start:
        return True
    pairs = [(getattr(before, name), getattr(after, name)) for name in (*_COUNTS, "generation_tokens", "prompt_tokens")]
    pairs += zip(before.accepted_per_position or [], after.accepted_per_position or [], strict=False)
    for rank, counts in before.per_engine.items():
        pairs += [
            (value, after.per_engine[rank].get(name)) for name, value in counts.items() if rank in after.per_engine and name in _COUNTS
        ]
    return any(old is not None and (new is None or not new >= old) for old, new in pairs)


def _no_series(after: EngineCounters, configured: bool | None) -> Speculation:
    """Absence means off with vLLM, which registers the series only where speculation is configured; else it says nothing."""
    if not after.engine.startswith("vllm"):
        return Speculation(status="not_reported", source="prometheus")
    return Speculation(status="off", source="prometheus", warnings=["speculation_not_active"] if configured else [])


def _change(before: EngineCounters, after: EngineCounters, requests: int | None) -> Speculation:
    drafts, draft_tokens, accepted = (_minus(getattr(after, name), getattr(before, name)) for name in _COUNTS)
    warnings: list[str] = []
    moved = draft_tokens if drafts is None else drafts
    if moved is None:
        return Speculation(status="unknown", source="prometheus", warnings=["counters_unreadable"])
    if not moved:
        return Speculation(
            status="never_drafted",
            source="prometheus",
            drafts=_whole(drafts),
            draft_tokens=_whole(draft_tokens),
            accepted_tokens=_whole(accepted),
        )
    v0 = after.engine == _V0
    if v0:
        # Its accepted tokens include some behind a rejected one, so every formula built on them overstates.
        warnings.append("v0_counters")
    generated = _minus(after.generation_tokens, before.generation_tokens)
    steps = None if v0 else _steps(generated, accepted, drafts, requests, warnings)
    return Speculation(
        status="on",
        source="prometheus",
        drafts=_whole(drafts),
        draft_tokens=_whole(draft_tokens),
        accepted_tokens=_whole(accepted),
        mean_acceptance_length=None if v0 else _acceptance_length(accepted, drafts),
        draft_acceptance_rate=_ratio(accepted, draft_tokens),
        per_position_acceptance=_per_position(before.accepted_per_position, after.accepted_per_position, drafts),
        effective_tokens_per_step=_ratio(None if generated is None else generated - (requests or 0), steps),
        draft_coverage=_ratio(drafts, steps),
        per_engine=_per_engine(before.per_engine, after.per_engine),
        comparable=not v0,
        warnings=warnings,
    )


def _steps(
    generated: float | None, accepted: float | None, drafts: float | None, requests: int | None, warnings: list[str]
) -> float | None:
    """Decode steps, each counted once a request; the formula stands at `speculation_between`."""
    if generated is None or accepted is None:
        return None
    steps = generated - (requests or 0) - accepted
    if drafts is not None and steps < drafts:
        warnings.append("accepted_past_the_end")
        steps = drafts
    return steps if steps > 0 else None


def _minus(after: float | None, before: float | None) -> float | None:
    if after is None or before is None or not math.isfinite(after - before):
        return None
    return after - before


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _acceptance_length(accepted: float | None, drafts: float | None) -> float | None:
    return None if accepted is None or not drafts else 1 + accepted / drafts


def _whole(count: float | None) -> int | None:
    return None if count is None else round(count)


def _per_position(before: Sequence[float] | None, after: Sequence[float] | None, drafts: float | None) -> list[float] | None:
    """A position that the first reading did not have yet began at 0."""
    if after is None or not drafts:
        return None
    old = [*(before or []), *([0.0] * len(after))]
    return [(new - old[i]) / drafts for i, new in enumerate(after)]


def _per_engine(before: Mapping[str, Mapping[str, float]], after: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """The same figures a rank; one that did not draft has null where a ratio would stand."""
    result: dict[str, Any] = {}
    for rank, counts in after.items():
        old = before.get(rank, {})
        drafts, draft_tokens, accepted = (_minus(counts.get(name), old.get(name)) for name in _COUNTS)
        result[rank] = {
            "drafts": _whole(drafts),
            "draft_tokens": _whole(draft_tokens),
            "accepted_tokens": _whole(accepted),
            "mean_acceptance_length": _acceptance_length(accepted, drafts),
            "draft_acceptance_rate": _ratio(accepted, draft_tokens),
        }
    return result


def merge(spans: Iterable[Speculation | None]) -> Speculation | None:
    """Several spans as one, from their summed counts. Spans that do not say the same kind of thing give `unknown`."""
    known = list(spans)
    found = [span for span in known if span is not None]
    if len(found) == len(known) == 1 or not found:
        return found[0] if found else None
    statuses = {span.status for span in found} | ({"not_reported"} if len(found) < len(known) else set())
    warnings = list(dict.fromkeys(warning for span in found for warning in span.warnings))
    source = found[0].source if len({span.source for span in found}) == 1 else None
    if len(statuses) == 1 and "on" not in statuses:
        return Speculation(status=found[0].status, source=source, warnings=warnings)
    if not statuses <= {"on", "never_drafted"}:
        return Speculation(status="unknown", warnings=[*warnings, "loads_differ"])
    return _pooled([span for span in found if span.status == "on"], source, warnings)


def _pooled(found: list[Speculation], source: Literal["prometheus", "log", "usage"] | None, warnings: list[str]) -> Speculation:
    def total(values: Iterable[float | None]) -> float | None:
        listed = list(values)
        return None if any(value is None for value in listed) else sum(value for value in listed if value is not None)

    drafts, draft_tokens, accepted = (total(getattr(span, name) for span in found) for name in _COUNTS)
    steps = total(_ratio(span.drafts, span.draft_coverage) for span in found)
    tokens = total(
        None
        if not span.draft_coverage or span.drafts is None
        else (span.effective_tokens_per_step or 0) * span.drafts / span.draft_coverage
        for span in found
    )
    width = {len(span.per_position_acceptance or []) for span in found}
    positions = [total((span.per_position_acceptance or [])[i] * (span.drafts or 0) for span in found) for i in range(min(width))]
    comparable = all(span.comparable for span in found)
    return Speculation(
        status="on",
        source=source,
        drafts=_whole(drafts),
        draft_tokens=_whole(draft_tokens),
        accepted_tokens=_whole(accepted),
        mean_acceptance_length=_acceptance_length(accepted, drafts) if comparable else None,
        draft_acceptance_rate=_ratio(accepted, draft_tokens),
        per_position_acceptance=_per_position(None, [p or 0.0 for p in positions], drafts) if positions and len(width) == 1 else None,
        effective_tokens_per_step=_ratio(tokens, steps),
        draft_coverage=_ratio(drafts, steps),
        comparable=comparable,
        warnings=warnings,
    )
