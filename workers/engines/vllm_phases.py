"""The lines by which vLLM shows how far a load is, and the figures in them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from workers.engines.base import LoadPhase

LAST_PHASES: dict[LoadPhase, int] = {phase: index for index, phase in enumerate(LoadPhase)}
"""Place of each phase in a load."""

VERSION = re.compile(r"vLLM API server version (\d\S*)|Initializing a V\d LLM engine \(v(\d[^)]*)\)|\bversion (\d+\.\d+\.\S+)$")
SERVING = re.compile(r"Application startup complete|Uvicorn running on ")

BAR = r"(?:(?P<percent>\d+)%)(?: Completed )?\|.*?(?P<done>\d+)/(?P<total>\d+) \["


@dataclass(frozen=True)
class PhaseRule:
    """A line, and the phase that it shows."""

    pattern: re.Pattern[str]
    phase: LoadPhase
    stage: str | None = None
    """None: the stage stays, or is what the pattern's group `stage` says."""

    def position(self, match: re.Match[str]) -> tuple[int | None, int | None, float | None]:
        """Done, total and percent, where the line has a bar."""
        found = match.groupdict()
        if not found.get("total"):
            return None, None, None
        done, total = int(found["done"]), int(found["total"])
        percent = float(found["percent"]) if found.get("percent") else (100.0 * done / total if total else None)
        return done, total, percent

    def stage_of(self, match: re.Match[str], before: str | None) -> str | None:
        """The part of the phase."""
        return self.stage or match.groupdict().get("stage") or before


def _rules(phase: LoadPhase, *patterns: str, stage: str | None = None) -> list[PhaseRule]:
    return [PhaseRule(re.compile(pattern), phase, stage) for pattern in patterns]


PHASES: tuple[PhaseRule, ...] = (
    *_rules(
        LoadPhase.ENGINE_INIT,
        r"vLLM API server version",
        r"non-default args: ",
        r"\bversion \d+\.\d+\.\S+$",
        r"Initializing a V\d LLM engine",
    ),
    *_rules(LoadPhase.WEIGHTS_LOADING, r"Starting to load model ", stage="model"),
    *_rules(LoadPhase.WEIGHTS_LOADING, r"Loading drafter model", stage="drafter"),
    *_rules(
        LoadPhase.WEIGHTS_LOADING,
        rf"(?:Loading|Multi-thread loading) .*?: +{BAR}",
        r"Prefetching checkpoint files: +(?P<percent>\d+)% \((?P<done>\d+)/(?P<total>\d+)\)",
        r"Loading weights took [\d.]+ seconds",
        r"Model loading took [\d.]+ GiB",
    ),
    *_rules(
        LoadPhase.TORCH_COMPILE,
        r"for vLLM's torch\.compile",
        r"Dynamo bytecode transform time",
        r"Compiling a graph for ",
        r"Cache the graph (?:of|for) ",
        r"torch\.compile (?:takes|took) ",
        stage="compiling",
    ),
    *_rules(LoadPhase.TORCH_COMPILE, r"Directly load the compiled graph", stage="from cache"),
    *_rules(LoadPhase.PROFILING_WARMUP, r"profiling(?:/warmup)? run took", r"Memory profiling takes", r"Available KV cache memory"),
    *_rules(LoadPhase.KV_CACHE_INIT, r"KV cache size: [\d,]+ tokens", r"# (?:GPU|cuda|CPU|cpu) blocks: \d+"),
    *_rules(
        LoadPhase.CUDA_GRAPH_CAPTURE,
        rf"Capturing CUDA graphs?(?: shapes)?(?: \((?P<stage>[^)]*)\))?: +{BAR}",
        r"Graph capturing finished in",
    ),
    *_rules(LoadPhase.WARMUP, r"init engine \(profile, create kv cache, warmup model\) took"),
    *_rules(LoadPhase.API_STARTUP, r"Starting vLLM (?:API )?server", r"Started server process", r"Waiting for application startup"),
)


def _number(text: str) -> int | float:
    plain = text.replace(",", "").rstrip(".")
    return float(plain) if "." in plain else int(plain)


def _seconds(text: str) -> float:
    return float(text.rstrip("."))


@dataclass(frozen=True)
class FactRule:
    """Figures in a line, by the names they are kept under. `adds`: a second such line is of a further model."""

    pattern: re.Pattern[str]
    names: tuple[str, ...]
    convert: Callable[[str], int | float | str]
    adds: bool = False


FACTS: tuple[FactRule, ...] = (
    FactRule(re.compile(r"Loading weights took ([\d.]+) seconds"), ("weights_loading_seconds",), _seconds, adds=True),
    FactRule(
        re.compile(r"Model loading took ([\d.]+) GiB(?: memory)? and ([\d.]+) seconds"), ("weights_gib", "model_loading_seconds"), _seconds
    ),
    FactRule(re.compile(r"torch\.compile (?:takes|took) ([\d.]+) s in total"), ("torch_compile_seconds",), _seconds),
    FactRule(re.compile(r"torch\.compile and initial profiling run took ([\d.]+) s"), ("torch_compile_seconds",), _seconds),
    FactRule(re.compile(r"Initial profiling/warmup run took ([\d.]+) s"), ("profiling_seconds",), _seconds),
    FactRule(re.compile(r"Available KV cache memory: ([\d.]+) GiB"), ("available_kv_cache_gib",), _seconds),
    FactRule(re.compile(r"KV cache size: ([\d,]+) tokens"), ("kv_cache_tokens",), _number),
    FactRule(re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.,]+)x"), ("max_model_len", "max_concurrency"), _number),
    FactRule(
        re.compile(r"Graph capturing finished in ([\d.]+) secs?, took (-?[\d.]+) GiB"),
        ("graph_capture_seconds", "graph_memory_gib"),
        _seconds,
    ),
    FactRule(re.compile(r"init engine \(profile, create kv cache, warmup model\) took ([\d.]+) s"), ("init_engine_seconds",), _seconds),
    FactRule(re.compile(r"Using max model len (\d+)"), ("max_model_len",), _number),
    FactRule(re.compile(r"Resolved architecture: (\S+)"), ("architecture",), str),
    FactRule(re.compile(r"using the (V1) model runner instead|Using (V2) Model Runner"), ("model_runner",), str),
    FactRule(re.compile(r"estimated maximum model length is (\d+)"), ("estimated_max_model_len",), _number),
    FactRule(re.compile(r"\(([\d.]+) GiB KV cache is needed"), ("kv_cache_needed_gib",), _seconds),
    FactRule(re.compile(r"available KV cache memory \(([\d.]+) GiB\)"), ("available_kv_cache_gib",), _seconds),
    FactRule(re.compile(r"Free memory on device.*?\(([\d.]+)/([\d.]+) GiB\) on startup"), ("free_gib", "total_gib"), _seconds),
)


def read_facts(message: str, before: dict[str, object]) -> dict[str, object]:
    """The figures in one message."""
    found: dict[str, object] = {}
    for rule in FACTS:
        match = rule.pattern.search(message)
        if match is None:
            continue
        values = [value for value in match.groups() if value is not None]
        for name, text in zip(rule.names, values, strict=False):
            value = rule.convert(text)
            earlier = before.get(name)
            found[name] = (
                round(earlier + value, 3) if rule.adds and isinstance(earlier, int | float) and not isinstance(value, str) else value
            )
    return found
