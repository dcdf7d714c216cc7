"""Weights against the memory of the GPUs. Only what cannot be is refused: an engine that just fits is the engine's to judge. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from service.domain.reasons import Reason
from workers.engines.vllm_options import Line
from workers.hosts.gpu_reading import GpuReading
from workers.preflight.arguments import number
from workers.preflight.findings import Finding, doubtful, good, unchecked, wrong

MEMORY, PARALLEL = "GPU memory", "GPUs"
SMALLER = (
    "quantization",
    "cpu-offload-gb",
    "offload-backend",
    "offload-params",
    "cpu-offload-params",
    "load-format",
    "dtype",
    "hf-overrides",
)
"""Options with which what is loaded may be smaller than what lies on disk."""
ELSEWHERE = ("nnodes", "distributed-executor-backend", "data-parallel-backend", "data-parallel-size-local", "headless")
"""Options with which not all GPUs have to be in this host."""
SPARED = 0.05
"""Of the weights on disk, so much may stay unloaded, such as the layers of a model's own drafter."""
TIGHT = 0.92
"""vLLM's own share of a card, unless it is told otherwise."""


Chosen = Literal["all", "none"] | list[int]


def check_gpus(reading: GpuReading, chosen: Chosen) -> Iterator[Finding]:
    """Whether the GPUs are there that the experiment names."""
    there = [gpu.index for gpu in reading.gpus]
    missing = [index for index in chosen if index not in there] if isinstance(chosen, list) and (reading.known or reading.no_gpus) else []
    if missing:
        text = f"engine.gpus names {', '.join(map(str, missing))}, and the host has {', '.join(map(str, there)) or 'none'}"
        yield wrong(PARALLEL, Reason.BAD_ARGUMENTS, text, remedy="correct engine.gpus")


def check_weights(line: Line, model: Mapping[str, Any] | None, reading: GpuReading, chosen: Chosen) -> Iterator[Finding]:
    """Whether there are as many GPUs as are asked for, and whether a rank's share of the weights fits into one."""
    if reading.no_gpus:
        yield unchecked(MEMORY, "whether the weights fit: this host has no GPU")
        return
    if not reading.known:
        yield unchecked(MEMORY, f"whether the weights fit: {reading.tool}: {reading.why or 'no answer'}")
        return
    cards = [gpu for gpu in reading.gpus if not isinstance(chosen, list) or gpu.index in chosen]
    ranks = number(line, "tensor-parallel-size") * number(line, "pipeline-parallel-size")
    spread = any(line.of(name) for name in ELSEWHERE)
    if ranks > len(cards) and not spread:
        text = f"{ranks} GPUs are asked for by tensor- and pipeline-parallel-size, and {len(cards)} are there"
        yield wrong(PARALLEL, Reason.BAD_ARGUMENTS, text, remedy="lower tensor-parallel-size or pipeline-parallel-size")
        return
    yield good(PARALLEL, f"{ranks} of {len(cards)} are used by one copy of the model")
    yield _weights(line, model, [gpu.total_mib for gpu in cards], ranks)


def _weights(line: Line, model: Mapping[str, Any] | None, totals: list[int | None], ranks: int) -> Finding:
    size = int((model or {}).get("bytes") or 0)
    known = [total for total in totals if total]
    if not size:
        return unchecked(MEMORY, "whether the weights fit: how large they are is not known")
    if not known or len(known) < len(totals):
        return unchecked(MEMORY, "whether the weights fit: how much memory the cards have is not known")
    if line.of("enable-expert-parallel"):
        ranks *= number(line, "data-parallel-size")  # the experts, which are most of it, are shared among all
    share, card = size / ranks / 2**20, max(known)
    per = f"{share / 1024:.1f} GiB a card, which has {card / 1024:.1f}"
    told = f"{size / 2**30:.1f} GiB of weights on {ranks} GPU{'s' if ranks > 1 else ''} are {per}"
    if share * (1 - SPARED) > card and not _may_shrink(line, model):
        todo = "raise tensor-parallel-size, or take a model of a smaller quantisation"
        return wrong(MEMORY, Reason.CUDA_OUT_OF_MEMORY, f"the weights cannot fit: {told}", told, todo)
    if share > TIGHT * card:
        return doubtful(MEMORY, f"the weights may not fit: {told}", "raise tensor-parallel-size, or take a smaller quantisation")
    return good(MEMORY, told)


def _may_shrink(line: Line, model: Mapping[str, Any] | None) -> bool:
    config = (model or {}).get("config") or {}
    stored = str(config.get("dtype") or config.get("torch_dtype") or "")
    # vLLM loads a model of 32 bits with 16.
    return stored not in {"bfloat16", "float16"} or any(line.of(name) for name in SMALLER)
