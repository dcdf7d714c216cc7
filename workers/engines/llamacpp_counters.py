"""What llama-server counts, where it was started with --metrics."""

from __future__ import annotations

from service.domain.speculation import EngineCounters
from workers.engines.page import Page, per_position

_COUNTERS = {
    "generation_tokens": "llamacpp:tokens_predicted_total",
    "prompt_tokens": "llamacpp:prompt_tokens_total",
    "running": "llamacpp:requests_processing",
    "prefix_cache_hits": "llamacpp:prompt_tokens_cached_total",
    "drafts": "llamacpp:spec_decode_num_drafts_total",
    "draft_tokens": "llamacpp:spec_decode_num_draft_tokens_total",
    "accepted_tokens": "llamacpp:spec_decode_num_accepted_tokens_total",
}
_PER_POSITION = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"


def llamacpp_counters(page: Page) -> EngineCounters | None:
    """None where the page is not of one. The counters of speculation are there, at 0, also when it is off.

    It counts the prompt's tokens that it processed and those that it found in its cache apart; ours are all of them.
    """
    totals = {name: page.total(series) for name, series in _COUNTERS.items()}
    if totals["generation_tokens"] is None and totals["drafts"] is None:
        return None
    processed, found = totals["prompt_tokens"], totals["prefix_cache_hits"]
    if processed is not None and found is not None:
        totals |= {"prompt_tokens": processed + found, "prefix_cache_queries": processed + found}
    return EngineCounters(
        engine="llamacpp",
        accepted_per_position=per_position(page.series(_PER_POSITION)),
        unreadable=any(page.unreadable(_COUNTERS[name]) for name in ("drafts", "draft_tokens", "accepted_tokens")),
        process_start=page.total("process_start_time_seconds"),
        **totals,
    )
