"""The words for where an experiment is: the same on the command line, in the API, on pages and in messages."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from service.domain.reasons import RULES, Reason
from service.domain.status import Outcome, Status, StepName

_AT_STEP = {
    StepName.CLEAR: "Clearing the host",
    StepName.LAUNCH: "Launching",
    StepName.LOAD: "Loading",
    StepName.WARM: "Warming up",
    StepName.MEASURE: "Measuring",
    StepName.COLLECT: "Collecting",
}

LOAD_PHASES = {
    "engine_init": "engine starting",
    "weights_loading": "weights",
    "torch_compile": "compiling",
    "profiling_warmup": "profiling",
    "kv_cache_init": "KV cache",
    "cuda_graph_capture": "CUDA graphs",
    "warmup": "warm-up",
    "api_startup": "API starting",
}
"""Phases of a load, in order, as people call them."""

OF_THE_COMMAND = frozenset({Reason.COMMAND_FAILED, Reason.COMMAND_TIMEOUT})
"""Reasons that say where they belong, without a step's name."""


def status_text(
    status: Status,
    step: str | None,
    outcome: str | None,
    reason: str | None,
    kind: str = "",
    *,
    attended: bool = True,
    quiet_s: float = 0.0,
) -> str:
    """Such as `Queued`, `Measuring`, `Succeeded`, `Failed in load: the engine ran out of GPU memory`. `kind` is the engine's.

    `attended`: a worker holds the host, so that what is begun is also worked on. `quiet_s`: that one gave no sign for so long.
    """
    text = _plain_status(status, step, outcome, reason, kind)
    if not attended:
        return f"{text}; nobody works on it until a worker takes it up"
    return f"{text}; no sign of its worker for {quiet_s:.0f} s" if quiet_s else text


def _plain_status(status: Status, step: str | None, outcome: str | None, reason: str | None, kind: str) -> str:
    if status == Status.FINISHED:
        if outcome == Outcome.SUCCEEDED:
            return "Succeeded"
        why = RULES[Reason(reason)].sentence if reason else "no reason recorded"
        if outcome == Outcome.CANCELLED:
            return "Cancelled"
        word = "Invalid" if outcome == Outcome.INVALID else "Failed"
        return f"{word} in {step}: {why}" if step and reason not in OF_THE_COMMAND else f"{word}: {why}"
    if status == Status.STOPPING:
        return "Stopping"
    if status == Status.RUNNING:
        running = kind == "command" and step == StepName.MEASURE
        return "Running" if running else _AT_STEP[StepName(step)] if step else "Starting"
    return "Held" if status == Status.HELD else "Queued"


def where_text(status: Status, step: str | None, progress: Mapping[str, Any], ahead: int, detail: str) -> str:
    """The WHY / WHERE column: what it waits for, how far it is, or what ended it."""
    if status == Status.QUEUED:
        return f"{ahead} ahead on its host" if ahead else "next on its host"
    if status == Status.FINISHED:
        return detail
    if step == StepName.LOAD:
        return load_text(progress)
    if step == StepName.MEASURE and progress.get("requests"):
        speed = f", {progress['tps']:.1f} tok/s" if progress.get("tps") is not None else ""
        return f"c={progress['concurrency']}, request {progress['done']} of {progress['requests']}{speed}"
    return command_text(progress) if step == StepName.MEASURE else ""


def not_before_text(moment: datetime, now: datetime) -> str:
    """Such as `not before 30 Nov 22:00`, with the year where it is another one. Both times in the reader's zone."""
    year = "" if moment.year == now.year else f" {moment.year}"
    return f"not before {moment:%d %b}{year} {moment:%H:%M}"


def command_text(progress: Mapping[str, Any]) -> str:
    """Such as `45 %, 9 of 20: step 9/20`, by the last line that said so."""
    if progress.get("percent") is None or "text" not in progress:
        return ""
    count = f", {progress['done']} of {progress['total']}" if progress.get("done") is not None and progress.get("total") else ""
    return f"{progress['percent']:.0f} %{count}: {progress['text']}"


def load_text(progress: Mapping[str, Any]) -> str:
    """Such as `weights 29/64 (45 %)`."""
    phase = progress.get("phase")
    if not phase:
        return ""
    text = LOAD_PHASES.get(str(phase), str(phase))
    if progress.get("total"):
        text += f" {progress.get('done')}/{progress['total']}"
    if progress.get("percent") is not None:
        text += f" ({progress['percent']:.0f} %)"
    return text
