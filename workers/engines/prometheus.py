"""An engine's counters from its Prometheus page."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from service.domain.speculation import EngineCounters
from workers.engines.page import Page, Sample, parse_page
from workers.engines.sglang_counters import sglang_counters
from workers.engines.v0_counters import vllm_v0_counters

MOST_POSITION_DIGITS = 5
"""No draft is longer; a page that says so is not believed, since a list of that length would be made."""
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
_V0_ONLY = ("vllm:spec_decode_num_emitted_tokens_total", "vllm:num_requests_swapped", "vllm:cpu_cache_usage_perc")


def vllm_counters(page: Page) -> EngineCounters | None:
    """What vLLM V1 (0.8.3 and later) counts, summed over its data-parallel ranks; None where the page is not of one."""
    totals = {name: page.total(*series) for name, series in _V1_COUNTERS.items()}
    known = any(totals[name] is not None for name in ("generation_tokens", "drafts", "draft_tokens", "accepted_tokens"))
    if not known or any(page.series(name) for name in _V0_ONLY):
        return None
    return EngineCounters(
        engine="vllm",
        accepted_per_position=_per_position(page.series(_V1_PER_POSITION)),
        per_engine=_per_engine(page),
        process_start=page.total("process_start_time_seconds"),
        **totals,
    )


def _per_position(samples: list[Sample]) -> list[float] | None:
    positions: dict[int, float] = {}
    for sample in samples:
        position = sample.labels.get("position", "")
        if position.isdecimal() and len(position) < MOST_POSITION_DIGITS:
            positions[int(position)] = positions.get(int(position), 0.0) + sample.value
    return [positions.get(index, 0.0) for index in range(max(positions) + 1)] if positions else None


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


_LLAMACPP_COUNTERS = {
    "generation_tokens": "llamacpp:tokens_predicted_total",
    "prompt_tokens": "llamacpp:prompt_tokens_total",
    "running": "llamacpp:requests_processing",
    "drafts": "llamacpp:spec_decode_num_drafts_total",
    "draft_tokens": "llamacpp:spec_decode_num_draft_tokens_total",
    "accepted_tokens": "llamacpp:spec_decode_num_accepted_tokens_total",
}
_LLAMACPP_PER_POSITION = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"


def llamacpp_counters(page: Page) -> EngineCounters | None:
    """What llama-server counts; None where the page is not of one. The counters of speculation are there, at 0, also when it is off."""
    totals = {name: page.total(series) for name, series in _LLAMACPP_COUNTERS.items()}
    if totals["generation_tokens"] is None and totals["drafts"] is None:
        return None
    return EngineCounters(
        engine="llamacpp",
        accepted_per_position=_per_position(page.series(_LLAMACPP_PER_POSITION)),
        process_start=page.total("process_start_time_seconds"),
        **totals,
    )


READERS: tuple[Callable[[Page], EngineCounters | None], ...] = (vllm_v0_counters, vllm_counters, sglang_counters, llamacpp_counters)
"""One an engine; each says None to a page that is not its own."""


def counters_of(page: Page) -> EngineCounters | None:
    """The counters of whichever known engine wrote this page."""
    return next((counters for counters in (reader(page) for reader in READERS) if counters is not None), None)


def read_counters(url: str, headers: Mapping[str, str] | None = None, timeout_s: float = 5.0) -> EngineCounters | None:
    """One reading. None where nothing answers, the answer is not 200, or no known engine's series are in it."""
    import httpx  # noqa: PLC0415 - slow to import, and not needed to parse a page

    from workers.engines.trust import trusted  # noqa: PLC0415 - as above

    try:
        answer = httpx.get(url, headers=dict(headers or {}), timeout=timeout_s, follow_redirects=True, trust_env=False, verify=trusted())
    except (httpx.HTTPError, httpx.InvalidURL):
        return None
    return counters_of(parse_page(answer.text)) if answer.status_code == httpx.codes.OK else None
