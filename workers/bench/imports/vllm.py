"""`vllm bench serve --save-result`, with or without `--save-detailed`."""

from __future__ import annotations

from typing import Any

from service.domain.measurement import Distribution, PhaseSummary, RequestResult
from service.domain.speculation import Speculation
from workers.bench.imports.base import NO_END, Imported, ImportedPhase, count, listed, number, request, spread
from workers.bench.summary import distribution, summarise

NAME = "vllm bench serve"
ROLE = "vLLM's clients up to 0.32, and its Rust client, take the chunk that only names the role for the first token: TTFT may be too short"
SUMMARY_ONLY = "the file holds summaries only (no --save-detailed): percentiles it does not give and tok/s a request are not known"
REBUILT = "the latency of a request is rebuilt from its first token and the gaps behind it"
NO_SPECULATION = "nothing is said of speculation: it was off, never drafted, or the counters could not be read"


def is_one(value: dict[str, Any]) -> bool:
    """Whether a JSON object is such a file."""
    # Its first versions did not name the route.
    named = "endpoint_type" in value or {"completed", "request_rate", "model_id"} <= value.keys()
    return named and {"num_prompts", "total_output_tokens"} <= value.keys()


def read(value: dict[str, Any]) -> Imported:
    """Its figures under our names."""
    notes = [NO_END, ROLE]
    requests = _requests(value, notes)
    summary = summarise(requests, number(value.get("duration")) or 0.0) if requests else _summary(value, notes)
    if requests:
        summary = summary.model_copy(update={"itl_ms": _gaps(value, requests)})
    speculation = _speculation(value)
    if speculation.status == "not_reported":
        notes.append(NO_SPECULATION)
    rate = number(value.get("request_rate"))
    phase = ImportedPhase(
        concurrency=count(value.get("max_concurrency")), request_rate=rate, requests=requests, summary=summary, speculation=speculation
    )
    return Imported(source=NAME, label=value.get("label"), model=value.get("model_id"), phases=[phase], notes=notes)


def _requests(value: dict[str, Any], notes: list[str]) -> list[RequestResult]:
    errors, ttfts = value.get("errors"), value.get("ttfts")
    if not isinstance(errors, list) or not isinstance(ttfts, list):
        notes.append(SUMMARY_ONLY)
        return []
    total = len(errors)
    latencies = value.get("latencies")
    if not isinstance(latencies, list):
        notes.append(REBUILT)
        pairs = zip(ttfts, listed(value.get("itls"), total), strict=True)
        latencies = [None if gaps is None else ttft + sum(gaps) for ttft, gaps in pairs]
    columns = (errors, ttfts, latencies, listed(value.get("output_lens"), total), listed(value.get("input_lens"), total))
    return [
        # A failed request stands in every list with zeros.
        request(index, ok=not error, why=error or None, ttft_s=None if error else ttft, e2e_s=None if error else latency,
                completion_tokens=None if error else made, prompt_tokens=asked)
        for index, (error, ttft, latency, made, asked) in enumerate(zip(*columns, strict=True))
    ]  # fmt: skip


def _gaps(value: dict[str, Any], requests: list[RequestResult]) -> Distribution:
    """Gaps between chunks, as ours."""
    gaps = [gap for one, itls in zip(requests, listed(value.get("itls"), len(requests)), strict=True) if one.ok for gap in itls or []]
    return distribution(gaps, 1000)


def _summary(value: dict[str, Any], notes: list[str]) -> PhaseSummary:
    ok, asked, refused = (_counted(value, name) for name in ("completed", "num_prompts", "failed"))
    failed = max(refused, asked - ok)
    tokens = count(value.get("total_output_tokens"))
    if ok and not tokens:
        notes.append("its successes have no token together: by our definition none of them is one")
        failed = asked
    some = failed < asked
    figures = {
        # Where nothing succeeded, it writes zeros.
        name: spread({key: value.get(f"{key}_{theirs}_ms") for key in ("mean", "median", "p90", "p99") if some}, median="median")
        for name, theirs in (("ttft_ms", "ttft"), ("tpot_ms", "tpot"), ("itl_ms", "itl"), ("e2e_ms", "e2el"))
    }
    return PhaseSummary(
        requests=max(asked, ok + failed) if tokens else asked,
        failed=failed,
        valid=failed == 0 and asked > 0,
        duration_s=number(value.get("duration")) or 0.0,
        output_tokens=tokens if some else None,
        output_tps=number(value.get("output_throughput")) if some else None,
        tps=Distribution(),
        **figures,
    )


def _counted(value: dict[str, Any], name: str) -> int:
    """A count, 0 where it is not there; ValueError for what is none."""
    found = count(value.get(name))
    if found is None and value.get(name) is not None:
        raise ValueError(f"{name} is no number: {value[name]!r:.60}")
    return found or 0


def _speculation(value: dict[str, Any]) -> Speculation:
    """Its rate is a percentage, its rates by position are shares; the block is left out where nothing was drafted."""
    drafts = value.get("spec_decode_num_drafts")
    rate = number(value.get("spec_decode_acceptance_rate"))
    if drafts is None or rate is None:
        return Speculation(status="not_reported")
    return Speculation(
        status="on",
        source="prometheus",
        drafts=drafts,
        draft_tokens=value.get("spec_decode_draft_tokens"),
        accepted_tokens=value.get("spec_decode_accepted_tokens"),
        mean_acceptance_length=number(value.get("spec_decode_acceptance_length")),
        draft_acceptance_rate=rate / 100,
        per_position_acceptance=value.get("spec_decode_per_position_acceptance_rates"),
    )
