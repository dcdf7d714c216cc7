"""What an engine says about speculation with the answer itself, and whether it agrees with the engine's counters.

* vLLM, with `--per-request-spec-decode-metrics`: `metrics.speculative_decoding` on the last chunk;
* SGLang: `meta_info.spec_*`;
* llama.cpp: `timings.draft_n` and `draft_n_accepted`, there only where something was drafted. It counts no drafts there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from service.domain.speculation import Speculation, ratio, whole

DIFFERS = "payload_differs_from_counters"


def of_answer(said: Mapping[str, Any], completion_tokens: int | None) -> Speculation | None:
    """From the objects that came beside an answer, by their names; None where none of them speaks of speculation."""
    metrics, meta, timings = (said.get(name) for name in ("metrics", "meta_info", "timings"))
    if isinstance(metrics, Mapping) and isinstance(metrics.get("speculative_decoding"), Mapping):
        return _vllm(metrics["speculative_decoding"], completion_tokens)
    if isinstance(meta, Mapping) and _number(meta, "spec_verify_ct"):
        return _sglang(meta, completion_tokens)
    if isinstance(timings, Mapping) and _number(timings, "draft_n"):
        return _llamacpp(timings)
    return None


def _vllm(said: Mapping[str, Any], completion_tokens: int | None) -> Speculation:
    drafts, accepted, drafted = (_number(said, name) for name in ("num_spec_steps", "num_accepted_draft_tokens", "num_draft_tokens"))
    histogram = said.get("acceptance_histogram")
    positions = None
    if drafts and isinstance(histogram, list) and all(isinstance(count, int) for count in histogram):
        # Entry j: how many drafts had exactly j tokens accepted; so position i was accepted in all beyond it.
        positions = [sum(histogram[i + 1 :]) / drafts for i in range(len(histogram) - 1)]
    return _made(drafts, drafted, accepted, completion_tokens, positions)


def _sglang(said: Mapping[str, Any], completion_tokens: int | None) -> Speculation:
    steps = _number(said, "spec_verify_ct")
    accepted = _first(said, "spec_num_correct_drafts", "spec_accept_token_num")
    drafted = _first(said, "spec_num_proposed_drafts", "spec_draft_token_num")
    return _made(steps, drafted, accepted, completion_tokens, None)


def _llamacpp(said: Mapping[str, Any]) -> Speculation:
    predicted, drafted, accepted = (_number(said, name) for name in ("predicted_n", "draft_n", "draft_n_accepted"))
    return _made(None, drafted, accepted, whole(predicted), None)


def _made(
    drafts: float | None, drafted: float | None, accepted: float | None, completion_tokens: int | None, positions: list[float] | None
) -> Speculation:
    if not drafts and not drafted:
        return Speculation(status="never_drafted", source="usage", drafts=whole(drafts), draft_tokens=whole(drafted), accepted_tokens=0)
    decoded = None if completion_tokens is None else completion_tokens - 1
    steps = None if decoded is None or accepted is None else max(decoded - accepted, drafts or 0.0)
    return Speculation(
        status="on",
        source="usage",
        drafts=whole(drafts),
        draft_tokens=whole(drafted),
        accepted_tokens=whole(accepted),
        mean_acceptance_length=None if accepted is None or not drafts else 1 + accepted / drafts,
        draft_acceptance_rate=ratio(accepted, drafted),
        per_position_acceptance=positions,
        effective_tokens_per_step=ratio(decoded, steps),
        draft_coverage=ratio(drafts, steps),
    )


def reconciled(counters: Speculation | None, payload: Speculation | None) -> Speculation | None:
    """One account of two: the counters' where both are there, with a warning where they disagree; else whichever there is."""
    if payload is None or counters is None or counters.status in {"not_reported", "unknown"}:
        if payload is None:
            return counters
        return payload if counters is None else payload.model_copy(update={"warnings": [*payload.warnings, *counters.warnings]})
    pairs = [(getattr(counters, name), getattr(payload, name)) for name in ("drafts", "draft_tokens", "accepted_tokens")]
    if counters.source != "prometheus" or all(None in pair or pair[0] == pair[1] for pair in pairs):
        return counters
    return counters.model_copy(update={"warnings": [*counters.warnings, DIFFERS]})


def _first(said: Mapping[str, Any], *names: str) -> float | None:
    return next((value for name in names if (value := _number(said, name)) is not None), None)


def _number(said: Mapping[str, Any], name: str) -> float | None:
    value = said.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
