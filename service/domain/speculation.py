"""Speculative decoding in numbers: the engine's counters, and what the change between two readings says.

Formulas (names as in vLLM's metrics; `d` is the change of a counter over the measured span):

* mean acceptance length = 1 + d(accepted) / d(drafts), the token the target model adds included;
* draft acceptance rate = d(accepted) / d(draft tokens), 0..1;
* per-position acceptance i = d(accepted at i) / d(drafts), unconditional;
* effective tokens per step = d(generated) / (d(generated) - d(accepted)): every decode step emits one token of
  the target's own plus the accepted ones, so steps = generated - accepted;
* draft coverage = d(drafts) / (d(generated) - d(accepted)), the share of steps that had a draft.
"""

from __future__ import annotations

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
