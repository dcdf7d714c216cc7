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
    return EngineCounters(
        engine="sglang",
        generation_tokens=page.total("sglang:generation_tokens_total"),
        prompt_tokens=page.total("sglang:prompt_tokens_total"),
        running=page.total("sglang:num_running_reqs"),
        gauges=gauges,
        process_start=page.total("process_start_time_seconds"),
    )


def _rank(sample: Sample) -> str:
    return sample.labels.get("dp_rank") or "0"
