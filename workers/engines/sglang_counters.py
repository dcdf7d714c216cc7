"""SGLang's page: a few counters, and gauges of speculation, which cannot be differenced."""

from __future__ import annotations

from service.domain.speculation import EngineCounters
from workers.engines.page import Page, Sample

_GAUGES = {"accept_length": "sglang:spec_accept_length", "accept_rate": "sglang:spec_accept_rate"}


def sglang_counters(page: Page) -> EngineCounters | None:
    """What SGLang shows; None where the page is not of it. Tensor-parallel ranks of one engine repeat its gauges, and count once."""
    if not any(sample.name.startswith("sglang:") for sample in page.samples):
        return None
    gauges: dict[str, dict[str, float]] = {}
    for name, series in _GAUGES.items():
        for sample in page.series(series):
            gauges.setdefault(_rank(sample), {})[name] = sample.value
    prompts, found = page.total("sglang:prompt_tokens_total"), page.total("sglang:cached_tokens_total")
    return EngineCounters(
        engine="sglang",
        generation_tokens=page.total("sglang:generation_tokens_total"),
        prompt_tokens=prompts,
        # Its prompts' tokens are all of them, those from the cache too.
        prefix_cache_queries=None if found is None else prompts,
        prefix_cache_hits=found,
        running=page.total("sglang:num_running_reqs"),
        gauges=gauges,
        created=page.created("sglang:generation_tokens_total", "sglang:prompt_tokens_total"),
        process_start=page.total("process_start_time_seconds"),
    )


def _rank(sample: Sample) -> str:
    return sample.labels.get("dp_rank") or "0"
