"""A night as the service would answer it: fixed data, at a fixed time."""

from __future__ import annotations

from typing import Any

from tests.unit.cli.fake_hosts import host
from tests.unit.cli.fake_service import Json, item

AT = "2026-12-01T02:06:00Z"
EVENING = "2026-11-30T18:00:00Z"
BASE, BETTER, SAME, FAILED, WORSE, RUNNING, QUEUED, HELD = range(41, 49)
REASON = "the KV cache does not fit the requested context"
EVIDENCE = "ValueError: max seq len (262144) is larger than what fits (75312)"
REMEDY = "lower max-model-len to the estimate in the evidence"


def night(**changes: Any) -> Json:
    base: Json = {
        "since": EVENING, "at": AT, "hosts": [host(night_text="")], "counts": {}, "open": [], "outcomes": {}, "ended": [],
    }  # fmt: skip
    return {**base, **changes}


def ended(found: Json, tps: float | None = None, versus: Json | None = None, why: str = "") -> Json:
    return {"experiment": found, "tps": tps, "versus": versus, "not_compared": why}


def versus(verdict: str, ratio: float | None, low: float = 0.0, high: float = 0.0) -> Json:
    return {"baseline": BASE, "verdict": verdict, "tps_ratio": ratio, "ci95": [low, high] if low else None}


def finished(number: int, name: str, start: str, end: str, outcome: str = "succeeded", **changes: Any) -> Json:
    times = {"started_at": f"2026-11-30T{start}Z", "finished_at": f"2026-11-30T{end}Z"}
    said = {"status_text": "Succeeded", "where_text": "", "load_text": "", "eta": None, "eta_text": ""}
    return item(number, name=name, host="gpu-01", status="finished", outcome=outcome, **{**said, **times, **changes})


def experiments() -> dict[int, Json]:
    failed = {
        "status_text": f"Failed in load: {REASON}", "where_text": "16.0 GiB KV cache is needed", "detail": "16.0 GiB KV cache is needed",
        "evidence": EVIDENCE, "remedy": REMEDY, "reason": "kv_cache_too_small",
    }  # fmt: skip
    return {
        BASE: finished(BASE, "qwen3-32b base", "20:05:00", "20:42:00"),
        BETTER: finished(BETTER, "qwen3-32b eagle3 k=3", "20:42:20", "21:20:00"),
        SAME: finished(SAME, "qwen3-32b NCCL_ALGO=Ring", "21:20:20", "21:57:00"),
        FAILED: finished(FAILED, "qwen3-32b max-model-len=262144", "21:57:20", "22:03:00", "failed", **failed),
        WORSE: finished(WORSE, "qwen3-32b ngram k=5", "23:30:00", "23:59:00"),
    }


def a_full_night() -> Json:
    known = experiments()
    running = item(
        RUNNING, name="qwen3-32b eagle3 k=5", host="gpu-01", status="running", status_text="Measuring", load_text="", step="measure",
        where_text="c=8, request 7 of 25, 79.4 tok/s", started_at="2026-12-01T01:30:00Z", eta="2026-12-01T02:20:00Z",
        eta_text="about 14 min left (p90 20 min)",
    )  # fmt: skip
    queued = item(
        QUEUED, name="qwen3-32b eagle3 k=7", host="gpu-01", where_text=f"waits for {RUNNING}", load_text="", eta="2026-12-01T03:05:00Z",
        starts_at="2026-12-01T02:20:00Z", eta_text="starts about 02:20, ends about 03:05",
    )  # fmt: skip
    held = item(
        HELD, name="llama-70b q4", host="gpu-02", status="held", status_text="Held", where_text='by you: "after driver update"',
        load_text="", eta=None, eta_text="",
    )  # fmt: skip
    parked = "production parked since 20:03 (vllm-qwen3.service), back by 08:00"
    hosts = [
        host(name="gpu-01", busy=True, shift_text=parked, night_text="the night: 2 of 2 fit before 07:20"),
        host(name="gpu-02", shift_text="", night_text=""),
    ]
    return night(
        hosts=hosts,
        counts={"running": 1, "queued": 1, "held": 1},
        open=[running, queued, held],
        outcomes={"succeeded": 4, "failed": 1},
        ended=[
            ended(known[BASE], 60.0),
            ended(known[BETTER], 86.0, versus("better", 1.437, 1.375, 1.494)),
            ended(known[SAME], 60.5, versus("no_difference_shown", 1.008, 0.967, 1.051)),
            ended(known[FAILED]),
            ended(known[WORSE], 46.2, versus("worse", 0.77, 0.739, 0.803)),
        ],
    )


def _steps(start: str, *parts: tuple[str, int, int]) -> list[Json]:
    """Name, and the minutes after the hour at which it began and ended."""
    day, hour = start.split("T")
    at = [f"{day}T{int(hour) + minute // 60:02d}:{minute % 60:02d}:00Z" for _, *both in parts for minute in both]
    return [
        {"step": name, "attempt": 1, "started_at": at[2 * place], "finished_at": at[2 * place + 1]}
        for place, (name, _, _) in enumerate(parts)
    ]


def _bar(found: Json, *steps: Json, **changes: Any) -> Json:
    same = {key: found.get(key) for key in ("id", "name", "status", "outcome", "status_text", "started_at", "finished_at", "eta")}
    return {**same, "steps": list(steps), **changes}


def a_timeline() -> Json:
    known = experiments()
    full = a_full_night()
    running, queued, _ = full["open"]
    bars = [
        _bar(known[BASE], *_steps("2026-11-30T20", ("launch", 5, 6), ("load", 6, 12), ("warm", 12, 14), ("measure", 14, 42))),
        _bar(known[BETTER], *_steps("2026-11-30T20", ("load", 43, 50), ("warm", 50, 52), ("measure", 52, 80))),
        _bar(known[SAME], *_steps("2026-11-30T21", ("load", 20, 27), ("warm", 27, 29), ("measure", 29, 57))),
        _bar(known[FAILED], *_steps("2026-11-30T21", ("load", 57, 63))),
        _bar(known[WORSE], *_steps("2026-11-30T23", ("load", 30, 36), ("measure", 36, 59))),
        _bar(running, *_steps("2026-12-01T01", ("load", 30, 36), ("warm", 36, 38)),
             {"step": "measure", "attempt": 1, "started_at": "2026-12-01T01:38:00Z", "finished_at": None}),
    ]  # fmt: skip
    foreseen = {key: queued[key] for key in ("id", "name", "starts_at", "eta")}
    parked = {"parked_at": "2026-11-30T20:03:00Z", "restored_at": None}
    lanes = [
        {"host": "gpu-01", "simulated": False, "experiments": bars, "parked": [parked], "foreseen": [foreseen]},
        {"host": "gpu-02", "simulated": False, "experiments": [], "parked": [], "foreseen": []},
    ]
    return {"since": EVENING, "until": AT, "at": AT, "hosts": lanes}
