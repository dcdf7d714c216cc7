"""Measured arms for the tests of the comparison."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from service.domain.comparison import Arm, Comparison, compare
from service.domain.measurement import Distribution, PhaseResult, PhaseSummary, RequestResult
from service.domain.speculation import Speculation

NOTHING = Distribution()
DAY = datetime(2026, 11, 1, 3, tzinfo=UTC)
OFF = Speculation(status="off")


def request(prompt: str, tps: float | None, repeat: int = 0, **more: Any) -> RequestResult:
    values = {"tps": tps, "tpot_s": 1 / tps if tps else None, "ttft_s": 0.2, "ok": True, **more}
    return RequestResult(prompt=prompt, repeat=repeat, **values)


def phase(requests: list[RequestResult], concurrency: int = 1, speculation: Speculation | None = OFF) -> PhaseResult:
    failed = sum(not item.ok for item in requests)
    summary = PhaseSummary(
        requests=len(requests), failed=failed, valid=not failed, duration_s=2.0, output_tokens=100, output_tps=50.0,
        ttft_ms=NOTHING, tpot_ms=NOTHING, itl_ms=NOTHING, e2e_ms=NOTHING, tps=NOTHING,
    )  # fmt: skip
    return PhaseResult(concurrency=concurrency, requests=requests, summary=summary, speculation=speculation)


def speeds(values: dict[str, list[float]], concurrency: int = 1) -> PhaseResult:
    return phase([request(prompt, tps, n) for prompt, listed in values.items() for n, tps in enumerate(listed)], concurrency)


def arm(*loads: list[PhaseResult], **more: Any) -> Arm:
    values = {"experiment": 1, "name": "base", "host": "llm-two", "gpus": ["GPU-a", "GPU-b"], "served_model": "kimi", "bench_hash": "b1"}
    values |= {"driver": "590.1", "engine_version": "0.32.0", "measured_at": DAY, "loads": list(loads)}
    return Arm(**(values | more))


BASE = {"code": [62.0, 62.6, 63.2], "maths": [78.0, 78.5, 77.5]}
SLOWER = {"code": [46.0, 46.4, 46.8], "maths": [64.8, 65.3, 64.3]}


def verdict(base: dict[str, list[float]], candidate: dict[str, list[float]], **more: Any) -> Comparison:
    return compare(arm([speeds(base)]), arm([speeds(candidate)], experiment=2), **more)
