"""What vLLM counts: V1 (0.8.3 and later), and V0 (up to 0.10), which counts speculation in its own way."""

from __future__ import annotations

from service.domain.speculation import EngineCounters
from workers.engines.page import Page, per_position

_V1_COUNTERS: dict[str, tuple[str, ...]] = {
    "generation_tokens": ("vllm:generation_tokens_total",),
    "prompt_tokens": ("vllm:prompt_tokens_total",),
    "running": ("vllm:num_requests_running",),
    "prefix_cache_queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "prefix_cache_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "drafts": ("vllm:spec_decode_num_drafts_total",),
    "draft_tokens": ("vllm:spec_decode_num_draft_tokens_total",),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total",),
}
_V1_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
_EMITTED = "vllm:spec_decode_num_emitted_tokens_total"
_EFFICIENCY = "vllm:spec_decode_efficiency"
_SPECULATION = tuple(name for series in ("drafts", "draft_tokens", "accepted_tokens") for name in _V1_COUNTERS[series])
_BEGAN = ("vllm:generation_tokens_total", "vllm:prompt_tokens_total", *_SPECULATION)
_ODD_LENGTH = 0.05
"""How far from a whole number a draft's length may come out before it is not believed."""
_V0_ONLY = (_EMITTED, "vllm:num_requests_swapped", "vllm:cpu_cache_usage_perc")


def vllm_counters(page: Page) -> EngineCounters | None:
    """What vLLM V1 (0.8.3 and later) counts, summed over its data-parallel ranks; None where the page is not of one."""
    totals = {name: page.total(*series) for name, series in _V1_COUNTERS.items()}
    known = any(totals[name] is not None for name in ("generation_tokens", "drafts", "draft_tokens", "accepted_tokens"))
    if not known or any(page.series(name) for name in _V0_ONLY):
        return None
    return EngineCounters(
        engine="vllm",
        accepted_per_position=per_position(page.series(_V1_PER_POSITION)),
        per_engine=_per_engine(page),
        unreadable=any(page.unreadable(name) for name in _SPECULATION),
        process_start=page.total("process_start_time_seconds"),
        created=page.created(*_BEGAN),
        **totals,
    )


def _per_engine(page: Page) -> dict[str, dict[str, float]]:
    """The same counters a rank; ranks are told apart by model too where a page shows several models."""
    found: dict[str, dict[str, float]] = {}
    several = (
        len(
            {sample.labels.get("model_name") for sample in page.series("vllm:generation_tokens_total", "vllm:spec_decode_num_drafts_total")}
        )
        > 1
    )
    for name, series in (*_V1_COUNTERS.items(), ("accepted_at", (_V1_PER_POSITION,))):
        for sample in page.series(*series):
            rank = sample.labels.get("engine", "0")
            key = f"{sample.labels.get('model_name')}/{rank}" if several else rank
            field_name = f"{name}_{sample.labels.get('position')}" if name == "accepted_at" else name
            counters = found.setdefault(key, {})
            counters[field_name] = counters.get(field_name, 0.0) + sample.value
    return found


def vllm_v0_counters(page: Page) -> EngineCounters | None:
    """What a V0 that speculates counts; None where the page is not of one."""
    if page.total(_EMITTED, _EFFICIENCY) is None:
        return None
    drafted, emitted = page.total("vllm:spec_decode_num_draft_tokens_total"), page.total(_EMITTED)
    return EngineCounters(
        engine="vllm_v0",
        generation_tokens=page.total("vllm:generation_tokens_total"),
        prompt_tokens=page.total("vllm:prompt_tokens_total"),
        running=page.total("vllm:num_requests_running"),
        draft_tokens=drafted,
        accepted_tokens=page.total("vllm:spec_decode_num_accepted_tokens_total"),
        emitted_tokens=emitted,
        draft_length=_draft_length(drafted, emitted, page.total(_EFFICIENCY)),
        unreadable=drafted is None,
        process_start=page.total("process_start_time_seconds"),
        created=page.created(*_BEGAN),
    )


def _draft_length(drafted: float | None, emitted: float | None, efficiency: float | None) -> int | None:
    """Tokens of a draft. V0's efficiency is emitted / most that could be, which is a draft's tokens and one more, a draft."""
    if not drafted or not emitted or not efficiency:
        return None
    drafts = emitted / efficiency - drafted
    length = drafted / drafts if drafts > 0 else 0.0
    return round(length) if length and abs(length - round(length)) <= _ODD_LENGTH and round(length) else None
