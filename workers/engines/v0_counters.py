"""Counters of vLLM V0 (up to 0.10), which count in their own way."""

from __future__ import annotations

from service.domain.speculation import EngineCounters
from workers.engines.page import Page

_EMITTED = "vllm:spec_decode_num_emitted_tokens_total"
_EFFICIENCY = "vllm:spec_decode_efficiency"


def vllm_v0_counters(page: Page) -> EngineCounters | None:
    """What a V0 that speculates counts; None where the page is not of one."""
    if page.total(_EMITTED, _EFFICIENCY) is None:
        return None
    return EngineCounters(
        engine="vllm_v0",
        generation_tokens=page.total("vllm:generation_tokens_total"),
        prompt_tokens=page.total("vllm:prompt_tokens_total"),
        running=page.total("vllm:num_requests_running"),
        draft_tokens=page.total("vllm:spec_decode_num_draft_tokens_total"),
        accepted_tokens=page.total("vllm:spec_decode_num_accepted_tokens_total"),
        emitted_tokens=page.total(_EMITTED),
        process_start=page.total("process_start_time_seconds"),
    )
