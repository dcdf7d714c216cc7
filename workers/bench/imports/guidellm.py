"""guidellm's `benchmarks.json`.

Its inter-token latency, (last - first) / (n - 1), is our TPOT. Its "time per output token" is the whole latency over all tokens, the
time to the first included, and is none of ours.
"""

from __future__ import annotations

from typing import Any

from service.domain.measurement import Distribution, PhaseSummary, RequestResult
from workers.bench.imports.base import NO_END, Imported, ImportedPhase, number, request, spread
from workers.bench.summary import summarise

NAME = "guidellm"
WALL_CLOCK = "its times are of the wall clock, which somebody may have set meanwhile"
TOKENS = "its token counts are the server's usage where there was one, else the number of chunks"
SAMPLED = "the file keeps a sample of its requests only: the figures are the tool's own summaries"


def is_one(value: dict[str, Any]) -> bool:
    """Whether a JSON object is such a file."""
    metadata = value.get("metadata")
    return isinstance(value.get("benchmarks"), list) and isinstance(metadata, dict) and "guidellm_version" in metadata


def read(value: dict[str, Any]) -> Imported:
    """Its figures under our names, a phase a benchmark."""
    notes = [NO_END, WALL_CLOCK, TOKENS]
    phases = [_phase(benchmark, notes) for benchmark in value["benchmarks"]]
    model = ((value.get("config") or {}).get("spec") or {}).get("backend", {}).get("model")
    return Imported(
        source=NAME, source_version=value["metadata"]["guidellm_version"], model=model, phases=phases, notes=list(dict.fromkeys(notes))
    )


def _phase(benchmark: dict[str, Any], notes: list[str]) -> ImportedPhase:
    strategy = benchmark.get("config", {}).get("strategy", {})
    kept = benchmark.get("requests", {})
    rows = [(kind, one) for kind in ("successful", "errored", "incomplete") for one in kept.get(kind) or []]
    requests = [_request(index, kind, one) for index, (kind, one) in enumerate(rows)]
    metrics = benchmark.get("metrics", {})
    theirs = spread((metrics.get("time_per_output_token_ms") or {}).get("successful"))
    if theirs.mean is not None:
        notes.append(
            f'its "TPOT" ({theirs.mean:.2f} ms) is the whole latency over all tokens, the time to the first included: not taken for ours'
        )
    totals = metrics.get("request_totals") or {}
    duration = number(benchmark.get("duration")) or 0.0
    complete = not totals or len(requests) == sum(totals.get(kind) or 0 for kind in ("successful", "errored", "incomplete"))
    if not complete:
        notes.append(SAMPLED)
    return ImportedPhase(
        concurrency=strategy.get("streams") or strategy.get("max_concurrency"),
        request_rate=number(strategy.get("rate")),
        requests=requests if complete else [],
        summary=summarise(requests, duration) if complete and requests else _summary(metrics, totals, duration),
    )


def _request(index: int, kind: str, one: dict[str, Any]) -> RequestResult:
    info = one.get("info") or {}
    timings = info.get("timings") or {}
    started = number(timings.get("request_start"))

    def since(name: str) -> float | None:
        at = number(timings.get(name))
        return None if at is None or started is None else at - started

    ok = kind == "successful"
    return request(
        index,
        ok=ok,
        why=None if ok else str(info.get("error") or kind),
        ttft_s=since("first_token_iteration"),
        ttfa_s=since("first_output_token_iteration"),
        e2e_s=since("last_token_iteration"),
        completion_tokens=number((one.get("output_metrics") or {}).get("total_tokens")),
        prompt_tokens=number((one.get("input_metrics") or {}).get("total_tokens")),
    )


def _summary(metrics: dict[str, Any], totals: dict[str, Any], duration: float) -> PhaseSummary:
    def of(name: str, scale: float = 1.0) -> Distribution:
        figures = (metrics.get(name) or {}).get("successful") or {}
        return spread({**(figures.get("percentiles") or {}), "mean": figures.get("mean")}, scale)

    ok, failed = totals.get("successful") or 0, (totals.get("errored") or 0) + (totals.get("incomplete") or 0)
    tokens = number(((metrics.get("output_token_count") or {}).get("successful") or {}).get("total_sum"))
    return PhaseSummary(
        requests=ok + failed,
        failed=failed,
        valid=failed == 0 and ok > 0,
        duration_s=duration,
        output_tokens=None if tokens is None else round(tokens),
        output_tps=tokens / duration if tokens is not None and duration else None,
        ttft_ms=of("time_to_first_token_ms"),
        tpot_ms=of("inter_token_latency_ms"),
        itl_ms=Distribution(),
        e2e_ms=of("request_latency", 1000),
        tps=Distribution(),
    )
