"""Prometheus pages of an engine, before and after, as speculation in numbers."""

from __future__ import annotations

from typing import Any

from service.domain.reasons import Reason
from service.domain.speculation import EngineCounters, Speculation, speculation_between, speculation_so_far
from workers.diagnosis.cause import Cause, Weight
from workers.engines.page import parse_page
from workers.engines.prometheus import counters_of

NAMES = {"vllm": "vllm", "vllm_v0": "vllm", "sglang": "sglang", "llamacpp": "llama.cpp"}
OFF_UNLESS_ASKED = "off_unless_asked_for: these counters are there in any case; where speculation is asked for, it was never used"


def read_pages(before: str | None, after: str, *, tokens: int | None = None, configured: bool | None = None) -> dict[str, Any]:
    """Speculation between two pages, or since the server's start where there is one page.

    `tokens`: num_speculative_tokens, which V0's formulas need. `configured`: whether the experiment asks for speculation.
    """
    page = parse_page(after)
    first = parse_page(before) if before is not None else None
    errors = page.parse_errors + (first.parse_errors if first else 0)
    base: dict[str, Any] = {"parse_errors": errors, "scrape": "ok" if page.samples else "empty"}
    counters = counters_of(page)
    if counters is None:
        status = "not_reported" if page.samples else "unknown"
        return {**base, "status": status, "mean_acceptance_length": None, "draft_acceptance_rate": None}
    if first is None:
        found = speculation_so_far(counters, configured=configured, speculative_tokens=tokens)
    else:
        found = speculation_between(counters_of(first), counters, configured=configured, speculative_tokens=tokens)
    made = {**base, "engine": NAMES.get(counters.engine, counters.engine), **found.model_dump(mode="json")}
    return {**made, **_of_its_own(counters, found, tokens, configured)}


def _of_its_own(counters: EngineCounters, found: Speculation, tokens: int | None, configured: bool | None) -> dict[str, Any]:
    """What only one engine has."""
    if counters.engine == "sglang":
        return {"ranks_without_data": [rank for rank, gauge in counters.gauges.items() if not gauge.get("accept_length")]}
    if counters.engine == "llamacpp" and found.status == "never_drafted" and configured is None:
        return {"status": "off", "warnings": [*found.warnings, OFF_UNLESS_ASKED]}
    if counters.engine == "vllm_v0":
        tokens = tokens or counters.draft_length
        made: dict[str, Any] = {"engine_generation": "V0", "comparable_with_v1": "mean_acceptance_length yes, draft_acceptance_rate no"}
        if found.drafts and tokens and found.mean_acceptance_length:
            made["system_efficiency"] = found.mean_acceptance_length / (tokens + 1)
        return made
    return {}


def frozen(before: str | None, after: str) -> Cause | None:
    """An engine that has requests and generates nothing between two pages."""
    if before is None:
        return None
    first, last = counters_of(parse_page(before)), counters_of(parse_page(after))
    if first is None or last is None or not first.running or not last.running:
        return None
    moved = [(getattr(first, name), getattr(last, name)) for name in ("generation_tokens", "prompt_tokens")]
    if any(old is None or new is None or new != old for old, new in moved):
        return None
    text = f"{last.running:g} requests are running and no token was generated between the two readings"
    return Cause(Reason.ENGINE_UNRESPONSIVE, Weight.ROOT, text)
