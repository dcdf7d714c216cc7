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
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from service.domain.records import Record

SpeculationStatus = Literal["on", "off", "never_drafted", "not_reported", "unknown"]
Source = Literal["prometheus", "gauge", "log", "usage"]
"""Counters of a Prometheus page; its gauges, which cannot be differenced; summary lines of a log; what came with a request's answer."""


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
    emitted_tokens: float | None = None
    """Of vLLM V0 only: tokens that its speculative steps gave, the target's own included."""
    gauges: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Rank -> `accept_length` and `accept_rate`, ready-made (SGLang): over a window of the engine's own, 0 before anything was drafted."""
    per_engine: dict[str, dict[str, float]] = Field(default_factory=dict)
    draft_length: int | None = None
    """Of vLLM V0 only: tokens of a draft, worked out from its own gauge of efficiency."""
    unreadable: bool = False
    """Whether a series of speculation is there and holds no number (NaN)."""
    process_start: float | None = None
    """process_start_time_seconds where exposed: a change means that another process answers."""
    created: dict[str, float] = Field(default_factory=dict)
    """Series -> when it began, where the page tells: a change means the same."""


class Speculation(Record):
    """What speculation did over one span. `status` tells off, idle and unreported apart; none of them is 0."""

    status: SpeculationStatus
    source: Source | None = None
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
    """Whether `mean_acceptance_length` is 1 + accepted / drafts of exactly this span. See also `service.domain.drafters`."""
    warnings: list[str] = Field(default_factory=list)


COUNTS = ("drafts", "draft_tokens", "accepted_tokens")
_V0 = "vllm_v0"
_LLAMACPP = "llamacpp"
_SHOWN_WHEN_OFF = frozenset({_LLAMACPP, "sglang"})
_SIX_DIGITS = 1_000_000
V0_COUNTERS = "v0_counters"
"""The accepted tokens include some behind a rejected one: the acceptance rate does not compare with V1's."""
ROUNDED = "counters_rounded"
"""llama.cpp writes six digits of a number, so that beyond a million its counters tell small changes no longer."""
SINCE_START = "since_server_start"
NOTHING_GENERATED = "nothing_generated"
NOT_OF_THIS_RUN = "not_of_this_run"
"""A gauge over a window of the engine's own choice, which other requests may have filled."""


def speculation_between(
    before: EngineCounters | None,
    after: EngineCounters | None,
    *,
    requests: int | None = None,
    configured: bool | None = None,
    speculative_tokens: int | None = None,
) -> Speculation:
    """What speculation did between two readings of one engine's counters.

    `requests`: how many requests ran from start to end within the span. The first token of each comes from its prefill,
    not from a decode step, so generated = d(generation_tokens) - requests, and

        steps = max(generated - d(accepted), d(drafts))

    It is an approximation: accepted tokens behind a stop or a length limit are counted but not emitted, which makes the
    difference too small by up to k a request; d(drafts) bounds it from below, for every draft took a step. Requests that
    were cut, or cross the span's edges, blur it further. Without `requests` nothing is subtracted and steps come out one
    a request too many.

    `configured`: whether the experiment asks for speculation. llama.cpp and SGLang show their series, at 0, also when it is off; and
    a vLLM that was asked for it but shows none is worth a warning.

    `speculative_tokens`: how many a draft has. vLLM V0 counts no drafts, and all of its have this length.
    """
    if before is None or after is None:
        return Speculation(status="not_reported", warnings=["counters_not_read"])
    broken = _broken(before, after)
    if broken:
        return Speculation(status="unknown", source="prometheus", warnings=[broken])
    if before.unreadable or after.unreadable:
        return Speculation(status="unknown", source="prometheus", warnings=["counters_unreadable"])
    if after.draft_tokens is None and after.drafts is None:
        return _gauged(after, configured) if after.gauges else _no_series(after, configured)
    if after.engine == _V0:
        tokens = speculative_tokens or after.draft_length
        before, after = (_with_drafts(reading, tokens) for reading in (before, after))
    found = _change(before, after, requests)
    if found.status == "never_drafted" or NOTHING_GENERATED in found.warnings:
        ever = any(getattr(after, name) for name in COUNTS)
        return found.model_copy(update=_idle(after.engine, configured, ever=ever))
    return found


def speculation_so_far(page: EngineCounters, *, configured: bool | None = None, speculative_tokens: int | None = None) -> Speculation:
    """What speculation did since the server started, for a page without an earlier one: totals, not those of a run."""
    if page.generation_tokens == 0:
        # So new that nothing was asked of it: whether it generated without drafting is no question yet.
        page = page.model_copy(update={"generation_tokens": None})
    numbers = {name: 0.0 for name, value in page if isinstance(value, float) and name not in {"process_start", "running"}}
    ranks = {rank: dict.fromkeys(counts, 0.0) for rank, counts in page.per_engine.items()}
    positions = None if page.accepted_per_position is None else [0.0] * len(page.accepted_per_position)
    nothing = page.model_copy(update={**numbers, "per_engine": ranks, "accepted_per_position": positions})
    found = speculation_between(nothing, page, configured=configured, speculative_tokens=speculative_tokens)
    return found.model_copy(update={"warnings": [*found.warnings, SINCE_START]}) if found.source == "prometheus" else found


def _with_drafts(reading: EngineCounters, speculative_tokens: int | None) -> EngineCounters:
    return reading.model_copy(update={"drafts": v0_drafts(reading.draft_tokens, speculative_tokens)})


def v0_drafts(draft_tokens: float | None, speculative_tokens: int | None) -> float | None:
    """VLLM V0 counts no drafts; all of its have the length that it was asked for."""
    return ratio(draft_tokens, speculative_tokens)


def _idle(engine: str, configured: bool | None, *, ever: bool) -> dict[str, Any]:
    """What nothing drafted means. An engine that shows its series at 0 also when it is off may never have been asked to."""
    if configured is False:
        return {"status": "off", "warnings": []}
    if configured is None and not ever and engine in _SHOWN_WHEN_OFF:
        return {"status": "off", "warnings": ["off_or_never_drafted"]}
    return {}


def _broken(before: EngineCounters, after: EngineCounters) -> str | None:
    """Why the two readings have no difference, as a warning; None where they have."""
    if restarted(before, after):
        return "counter_reset"
    if before.per_engine and after.per_engine and before.per_engine.keys() != after.per_engine.keys():
        return "engines_changed"
    if any(getattr(before, name) is None and getattr(after, name) is not None for name in COUNTS):
        return "counters_appeared"
    return None


def restarted(before: EngineCounters, after: EngineCounters) -> bool:
    """Whether another process answered the second time: its kind or start time differs, or a counter fell or vanished."""
    if before.engine != after.engine:
        return True
    if before.process_start is not None and after.process_start is not None and before.process_start != after.process_start:
        return True
    if any(before.created[series] != after.created[series] for series in before.created.keys() & after.created.keys()):
        return True
    pairs = [(getattr(before, name), getattr(after, name)) for name in (*COUNTS, "emitted_tokens", "generation_tokens", "prompt_tokens")]
    pairs += zip(before.accepted_per_position or [], after.accepted_per_position or [], strict=False)
    for rank, counts in before.per_engine.items():
        pairs += [
            (value, after.per_engine[rank].get(name)) for name, value in counts.items() if rank in after.per_engine and name in COUNTS
        ]
    return any(old is not None and (new is None or not new >= old) for old, new in pairs)


def _gauged(after: EngineCounters, configured: bool | None) -> Speculation:
    """SGLang's acceptance per rank: its length has the target's own token in it. The mean is over the ranks that drafted."""
    lengths = {rank: gauge["accept_length"] for rank, gauge in after.gauges.items() if gauge.get("accept_length")}
    if not lengths:
        return Speculation(**{"status": "never_drafted", "source": "gauge", **_idle(after.engine, configured, ever=False)})
    rates = [gauge["accept_rate"] for rank, gauge in after.gauges.items() if rank in lengths and gauge.get("accept_rate") is not None]
    signs = {
        NOT_OF_THIS_RUN: True,
        "mean_of_ranks": len(lengths) > 1,
        "ranks_without_data": len(lengths) < len(after.gauges),
    }
    return Speculation(
        status="on",
        source="gauge",
        mean_acceptance_length=math.fsum(lengths.values()) / len(lengths),
        draft_acceptance_rate=math.fsum(rates) / len(rates) if rates else None,
        per_engine={
            rank: {
                "mean_acceptance_length": lengths.get(rank),
                "draft_acceptance_rate": gauge.get("accept_rate") if rank in lengths else None,
            }
            for rank, gauge in after.gauges.items()
        },
        comparable=False,
        warnings=[name for name, holds in signs.items() if holds],
    )


def _no_series(after: EngineCounters, configured: bool | None) -> Speculation:
    """Absence means off with vLLM, which registers the series only where speculation is configured; else it says nothing."""
    if not after.engine.startswith("vllm"):
        return Speculation(status="not_reported", source="prometheus")
    return Speculation(status="off", source="prometheus", warnings=["speculation_not_active"] if configured else [])


def _change(before: EngineCounters, after: EngineCounters, requests: int | None) -> Speculation:
    drafts, draft_tokens, accepted = (_minus(getattr(after, name), getattr(before, name)) for name in COUNTS)
    warnings: list[str] = []
    moved = draft_tokens if drafts is None else drafts
    if moved is None:
        return Speculation(status="unknown", source="prometheus", warnings=["counters_unreadable"])
    if not moved:
        # Where nothing was generated, nothing could be drafted: another server's page, or requests that were refused.
        idle = _minus(after.generation_tokens, before.generation_tokens) == 0
        return Speculation(
            status="unknown" if idle else "never_drafted",
            source="prometheus",
            warnings=[NOTHING_GENERATED] if idle else [],
            drafts=whole(drafts),
            draft_tokens=whole(draft_tokens),
            accepted_tokens=whole(accepted),
        )
    v0 = after.engine == _V0
    if v0:
        warnings.append(V0_COUNTERS)
    if after.engine == _LLAMACPP and any((getattr(after, name) or 0) >= _SIX_DIGITS for name in (*COUNTS, "generation_tokens")):
        warnings.append(ROUNDED)
    generated = _minus(after.generation_tokens, before.generation_tokens)
    steps = None if v0 else _steps(generated, accepted, drafts, requests, warnings)
    # Emitted / drafts is what 1 + accepted / drafts is with V1, and says so where V0's accepted tokens overstate.
    emitted = _minus(after.emitted_tokens, before.emitted_tokens)
    length = ratio(emitted, drafts) if v0 else acceptance_length(accepted, drafts)
    return Speculation(
        status="on",
        source="prometheus",
        drafts=whole(drafts),
        draft_tokens=whole(draft_tokens),
        accepted_tokens=whole(accepted),
        mean_acceptance_length=length,
        draft_acceptance_rate=ratio(accepted, draft_tokens),
        per_position_acceptance=per_position(before.accepted_per_position, after.accepted_per_position, drafts),
        effective_tokens_per_step=ratio(None if generated is None else generated - (requests or 0), steps),
        draft_coverage=ratio(drafts, steps),
        per_engine=_per_engine(before.per_engine, after.per_engine),
        comparable=not v0 or length is not None,
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


def ratio(part: float | None, of: float | None) -> float | None:
    """None where one of both is not known or there is nothing to divide by."""
    return None if part is None or not of else part / of


def acceptance_length(accepted: float | None, drafts: float | None) -> float | None:
    """With the token that the target adds to each draft."""
    return None if accepted is None or not drafts else 1 + accepted / drafts


def whole(count: float | None) -> int | None:
    """Counters are floats on their page."""
    return None if count is None else round(count)


def per_position(before: Sequence[float] | None, after: Sequence[float] | None, drafts: float | None) -> list[float] | None:
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
        drafts, draft_tokens, accepted = (_minus(counts.get(name), old.get(name)) for name in COUNTS)
        result[rank] = {
            "drafts": whole(drafts),
            "draft_tokens": whole(draft_tokens),
            "accepted_tokens": whole(accepted),
            "mean_acceptance_length": acceptance_length(accepted, drafts),
            "draft_acceptance_rate": ratio(accepted, draft_tokens),
        }
    return result
