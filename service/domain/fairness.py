"""The conditions of a bench phase in words; plain dictionaries in, so that drawing imports no model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RESTARTED, BUSY, FOREIGN = "server_restarted", "busy_at_start", "other_requests_seen"
CACHE_HITS, CACHE_UNKNOWN = "prefix_cache_hits", "prefix_cache_unknown"


def sentences(conditions: Mapping[str, Any] | None) -> list[str]:
    """What was not fair about a phase, from the JSON of its conditions."""
    if conditions is None:
        return []
    hits, others = conditions.get("prefix_cache_hit_rate"), conditions.get("foreign_tokens")
    words = {
        RESTARTED: "the server was restarted meanwhile: its counters are those of another process",
        BUSY: "the engine was busy before the first request",
        FOREIGN: "the engine served somebody else too" + (f" ({others} tokens that were not ours)" if others else ""),
        CACHE_HITS: f"{100 * (hits or 0):.0f} % of the prompts' tokens came from the prefix cache, so TTFT is that of a warm one",
        CACHE_UNKNOWN: "whether prompts came from a prefix cache is not known",
    }
    return [words.get(name, name) for name in conditions.get("warnings") or []]
