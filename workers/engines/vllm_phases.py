"""The lines by which vLLM shows how far a load is, and the figures in them."""

from __future__ import annotations

import re

from workers.engines.base import LoadPhase
from workers.engines.rules import FactRule, PhaseRule, decimal, phases, whole

VERSION = re.compile(
    r"vLLM API server version (?:v)?(\d[\w.+-]*)"
    r"|Initializing (?:a V\d|an) LLM engine \(v(\d[^)\s]*)\)"
    r"|\bversion (\d+\.\d+\.[\w.+-]+)$"
)
ANSWERED = r"\"POST /v1/(?:chat/)?completions HTTP/\d\.\d\" 200"
SERVING = re.compile(
    r"Application startup complete|Uvicorn running on "
    rf"|^Engine \d{{1,4}}: Avg prompt throughput: |^Spec(?:Decoding|ulative) metrics: |{ANSWERED}"
)
"""The last three are of a log whose beginning is not there: an engine answers, and counts what it serves, only once it serves."""
SIGNATURE = re.compile(
    r"^(?:APIServer|ApiServer|EngineCore|Worker|VllmWorker|DPCoordinator)|vLLM API server|LLM engine \(v|\[vllm\.py:|vLLM's torch\.compile"
    r"|EngineCore|WorkerProc|VllmWorker|vllm serve|^vllm: error|vllm\.v1\.|vllm/|[Ss]tarting vLLM|SpecDecoding metrics: "
    r"|gpu_memory_utilization|gpu_model_runner|(?:model_runner|executor_base|llm_engine|gpu_executor)\.py:"
)

BAR = r"(?:(?P<percent>\d{1,3})%)(?: Completed )?\|[^|]{0,200}?\|?\s{0,4}(?P<done>\d{1,9})/(?P<total>\d{1,9}) \["

PHASES: tuple[PhaseRule, ...] = (
    *phases(
        LoadPhase.ENGINE_INIT,
        r"vLLM API server version",
        r"non-default args: ",
        r"\bversion \d+\.\d+\.\S+$",
        r"Initializing (?:a V\d|an) LLM engine",
    ),
    *phases(LoadPhase.WEIGHTS_LOADING, r"Starting to load model ", stage="model"),
    *phases(LoadPhase.WEIGHTS_LOADING, r"Loading drafter model", stage="drafter"),
    *phases(
        LoadPhase.WEIGHTS_LOADING,
        rf"(?:Loading|Multi-thread loading) [^:%]{{1,120}}: +{BAR}",
        r"Prefetching checkpoint files: +(?P<percent>\d{1,3})% \((?P<done>\d{1,9})/(?P<total>\d{1,9})\)",
        r"Loading (?:model )?weights took [\d.]+ (?:seconds|GB)",
        r"Model loading took [\d.]+ Gi?B",
    ),
    *phases(
        LoadPhase.TORCH_COMPILE,
        r"for vLLM's torch\.compile",
        r"Dynamo bytecode transform time",
        r"Compiling a graph for ",
        r"Cache the graph (?:of|for) ",
        r"torch\.compile (?:takes|took) ",
        r"Start compiling function ",
        stage="compiling",
    ),
    *phases(LoadPhase.TORCH_COMPILE, r"Directly load the compiled graph", stage="from cache"),
    *phases(LoadPhase.PROFILING_WARMUP, r"profiling(?:/warmup)? run took", r"Memory profiling takes", r"Available KV cache memory"),
    *phases(LoadPhase.KV_CACHE_INIT, r"KV cache size: [\d,]+ tokens", r"# (?:GPU|CUDA|cuda|CPU|cpu) blocks: \d+"),
    *phases(
        LoadPhase.CUDA_GRAPH_CAPTURE,
        rf"Capturing CUDA graphs?(?: shapes)?(?: \((?P<stage>[^)]{{0,120}})\))?: +{BAR}",
        r"Capturing (?:the model for )?(?:CUDA graphs|cudagraphs)",
        r"Graph capturing finished in",
    ),
    *phases(LoadPhase.WARMUP, r"init engine \(profile, create kv cache, warmup model\) took"),
    *phases(LoadPhase.API_STARTUP, r"[Ss]tarting vLLM (?:API )?server", r"Started server process", r"Waiting for application startup"),
)

DEFAULT_PORT = 8000


def _default_port(_: str) -> int:
    """The default, where its repeated arguments do not name one."""
    return DEFAULT_PORT


FACTS: tuple[FactRule, ...] = (
    FactRule(re.compile(r"Loading (?:model )?weights took ([\d.]+) seconds"), ("weights_loading_seconds",), decimal, adds=True),
    FactRule(
        re.compile(r"Model loading took ([\d.]+) Gi?B(?: memory)? and ([\d.]+) seconds"), ("weights_gib", "model_loading_seconds"), decimal
    ),
    FactRule(re.compile(r"Loading model weights took ([\d.]+) GB"), ("weights_gib",), decimal),
    FactRule(re.compile(r"torch\.compile (?:takes|took) ([\d.]+) s in total"), ("torch_compile_seconds",), decimal),
    FactRule(re.compile(r"torch\.compile and initial profiling run took ([\d.]+) s"), ("torch_compile_seconds",), decimal),
    FactRule(re.compile(r"Dynamo bytecode transform time: ([\d.]+) s"), ("dynamo_seconds",), decimal),
    FactRule(re.compile(r"Initial profiling/warmup run took ([\d.]+) s"), ("profiling_seconds",), decimal),
    FactRule(re.compile(r"Memory profiling takes ([\d.]+) seconds"), ("profiling_seconds",), decimal),
    FactRule(re.compile(r"Available KV cache memory: ([\d.]+) GiB"), ("available_kv_cache_gib",), decimal),
    FactRule(re.compile(r"KV cache size: ([\d,]+) tokens"), ("kv_cache_tokens",), whole),
    FactRule(re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.,]+)x"), ("max_model_len", "max_concurrency"), whole),
    FactRule(
        re.compile(r"Graph capturing finished in ([\d.]+) secs?, took (-?[\d.]+) GiB"),
        ("graph_capture_seconds", "graph_memory_gib"),
        decimal,
    ),
    FactRule(re.compile(r"init engine \(profile, create kv cache, warmup model\) took ([\d.]+) s"), ("init_engine_seconds",), decimal),
    FactRule(re.compile(r"Using max model len (\d+)"), ("max_model_len",), whole),
    FactRule(re.compile(r"Resolved architecture: (\S+)"), ("architecture",), str),
    FactRule(re.compile(r"using the (V1) model runner instead|Using (V2) Model Runner"), ("model_runner",), str),
    FactRule(
        re.compile(r"Using (\w[\w ]{0,40}?) (?:attention )?backend(?: on V1 engine)?(?: out of potential backends.*)?\.?$"),
        ("attention_backend",),
        str,
    ),
    FactRule(re.compile(r"non-default args: .{0,4000}?'port': (\d{1,5})"), ("port",), whole),
    FactRule(re.compile(r"non-default args: (?!.{0,4000}?'port': )(?!.{0,4000}?'uds': ).{0,4000}?(\})$"), ("port",), _default_port),
    FactRule(re.compile(r"[Ss]tarting vLLM (?:API )?server(?: \d+)? on http://[^:\s]{1,80}:(\d{1,5})"), ("port",), whole),
)
