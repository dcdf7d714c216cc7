"""aiperf's `profile_export_aiperf.json` (summaries) and `profile_export.jsonl` (an object a request).

Its inter-token latency is our TPOT, its inter-chunk latency our ITL.
"""

from __future__ import annotations

from typing import Any

from service.domain.measurement import Distribution, PhaseSummary, RequestResult
from service.domain.speculation import Speculation, ratio
from workers.bench.imports.base import NO_END, Imported, ImportedPhase, number, request, spread
from workers.bench.summary import distribution, summarise

NAME = "aiperf"
OWN_TOKENS = "tokens were counted by the tool's own tokenizer, not by the server"
NO_ZEROS = "its tok/s a user leaves out requests that came in one piece"
NS = 1e-9
_MS = {"s": 1000.0, "sec": 1000.0, "seconds": 1000.0, "us": 1e-3, "ns": 1e-6}
"""Units of time in milliseconds, which is what it writes unless it is told otherwise."""


def is_one(value: dict[str, Any]) -> bool:
    """Whether a JSON object is its summary."""
    return "aiperf_version" in value and ("request_latency" in value or "error_request_count" in value)


def is_line(value: dict[str, Any]) -> bool:
    """Whether a JSON object is a line of its file of requests."""
    return isinstance(value.get("metrics"), dict) and "request_start_ns" in (value.get("metadata") or {})


def read(value: dict[str, Any]) -> Imported:
    """Its summaries under our names."""
    notes = [NO_END, NO_ZEROS]
    config = value.get("input_config") or {}
    if not (config.get("endpoint") or {}).get("use_server_token_count"):
        notes.append(OWN_TOKENS)
    cut = bool(value.get("was_cancelled")) or value.get("is_complete") is False
    if cut:
        notes.append(f"the run was not completed: {value.get('incomplete_reason') or 'cancelled'}")
    failed = round(_figure(value, "error_request_count") or 0)
    ok = round(_figure(value, "request_count") or 0)
    summary = PhaseSummary(
        requests=ok + failed,
        failed=failed,
        valid=failed == 0 and ok > 0 and not cut,
        duration_s=_figure(value, "benchmark_duration") or 0.0,
        output_tokens=None if (tokens := _figure(value, "total_osl")) is None else round(tokens),
        output_tps=_figure(value, "output_token_throughput"),
        ttft_ms=_spread(value, "time_to_first_token"),
        tpot_ms=_spread(value, "inter_token_latency"),
        itl_ms=_spread(value, "inter_chunk_latency"),
        e2e_ms=_spread(value, "request_latency"),
        tps=_spread(value, "output_token_throughput_per_user"),
    )
    models = [one.get("name") for one in (config.get("models") or {}).get("items") or []]
    phase = ImportedPhase(concurrency=_concurrency(config), summary=summary, speculation=_speculation(value))
    return Imported(source=NAME, source_version=value.get("aiperf_version"), model=", ".join(filter(None, models)) or None, phases=[phase], notes=notes)  # fmt: skip # noqa: E501


def read_lines(lines: list[dict[str, Any]]) -> Imported:
    """Its requests under our names."""
    rows = [line for line in lines if (line.get("metadata") or {}).get("benchmark_phase") in {None, "profiling"}]
    requests = [_request(index, line) for index, line in enumerate(rows)]
    starts, ends = ([number(line["metadata"].get(f"request_{end}_ns")) or 0.0 for line in rows] for end in ("start", "end"))
    duration = (max(ends) - min(starts)) * NS if rows else 0.0
    gaps = [gap for line, one in zip(rows, requests, strict=True) if one.ok for gap in _value(line, "inter_chunk_latency") or []]
    summary = summarise(requests, duration).model_copy(update={"itl_ms": distribution(gaps)})
    return Imported(source=NAME, phases=[ImportedPhase(concurrency=None, requests=requests, summary=summary)], notes=[NO_END])


def _request(index: int, line: dict[str, Any]) -> RequestResult:
    error = line.get("error") or ("cancelled" if line["metadata"].get("was_cancelled") else None)

    def seconds(name: str) -> float | None:
        value = number(_value(line, name))
        return None if value is None else value * _scale((line.get("metrics") or {}).get(name)) / 1000

    return request(
        index,
        ok=not error,
        why=str(error.get("message") if isinstance(error, dict) else error) if error else None,
        ttft_s=seconds("time_to_first_token"),
        ttfa_s=seconds("time_to_first_output_token"),
        e2e_s=seconds("request_latency"),
        completion_tokens=number(_value(line, "output_sequence_length")),
        prompt_tokens=number(_value(line, "input_sequence_length")),
    )


def _value(line: dict[str, Any], name: str) -> Any:
    return ((line.get("metrics") or {}).get(name) or {}).get("value")


def _figure(value: dict[str, Any], name: str) -> float | None:
    return number((value.get(name) or {}).get("avg"))


def _spread(value: dict[str, Any], name: str) -> Distribution:
    return spread(value.get(name), _scale(value.get(name)), mean="avg")


def _scale(metric: Any) -> float:
    return _MS.get(str(metric.get("unit")).lower(), 1.0) if isinstance(metric, dict) else 1.0


def _concurrency(config: dict[str, Any]) -> int | None:
    found = [phase.get("concurrency") for phase in config.get("phases") or [] if phase.get("name") in {None, "profiling"}]
    return next((one for one in found if isinstance(one, int)), None)


def _speculation(value: dict[str, Any]) -> Speculation:
    """From the answers themselves, where the server gives it with them; it reads no counters."""
    steps, accepted, drafted = (
        _figure(value, name) for name in ("total_spec_decode_steps", "total_accepted_draft_tokens", "total_draft_tokens")
    )
    histogram = value.get("pooled_spec_decode_acceptance_histogram")
    positions = None
    if isinstance(histogram, list) and histogram and all(isinstance(one, int) for one in histogram):
        # Entry j: how many steps had exactly j tokens accepted.
        steps = float(sum(histogram)) if steps is None else steps
        accepted = float(sum(j * one for j, one in enumerate(histogram))) if accepted is None else accepted
        positions = [sum(histogram[i + 1 :]) / steps for i in range(len(histogram) - 1)] if steps else None
    if steps is None:
        return Speculation(status="not_reported")
    return Speculation(
        status="on" if steps else "never_drafted",
        source="usage",
        drafts=round(steps),
        draft_tokens=None if drafted is None else round(drafted),
        accepted_tokens=None if accepted is None else round(accepted),
        mean_acceptance_length=1 + accepted / steps if accepted is not None and steps else None,
        draft_acceptance_rate=ratio(accepted, drafted),
        per_position_acceptance=positions,
    )
