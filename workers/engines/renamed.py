"""Options of vLLM that went away, and what took their place; else the nearest one by its letters."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

RENAMED: dict[str, str] = {
    "--disable-log-requests": "leave it out (requests are not logged any more unless --enable-log-requests)",
    "--speculative-model": "--speculative-config '{\"model\": ...}'",
    "--num-speculative-tokens": "--speculative-config '{\"num_speculative_tokens\": ...}'",
    "--ngram-prompt-lookup-max": "--speculative-config '{\"prompt_lookup_max\": ...}'",
    "--ngram-prompt-lookup-min": "--speculative-config '{\"prompt_lookup_min\": ...}'",
    "--speculative-disable-by-batch-size": "--speculative-config '{\"num_speculative_tokens_per_batch_size\": ...}'",
    "--speculative-draft-tensor-parallel-size": "--speculative-config '{\"draft_tensor_parallel_size\": ...}'",
    "--use-v2-block-manager": "leave it out (it is the only one)",
    "--enable-reasoning": "--reasoning-parser",
    "--guided-decoding-backend": "--structured-outputs-config",
    "--max-seq-len-to-capture": "--max-cudagraph-capture-size",
    "--cuda-graph-sizes": "--cudagraph-capture-sizes",
    "--task": "--runner",
    "--num-scheduler-steps": "leave it out (--async-scheduling took its place)",
    "--rope-scaling": "--hf-overrides",
    "--draft-max": "--spec-draft-n-max",
    "--draft-min": "--spec-draft-n-min",
}
"""Old name -> what to write now. The last two are llama.cpp's."""

KNOWN: tuple[str, ...] = (
    "--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size", "--enable-expert-parallel", "--max-model-len",
    "--max-num-seqs", "--max-num-batched-tokens", "--gpu-memory-utilization", "--kv-cache-memory-bytes", "--kv-cache-dtype",
    "--block-size", "--enforce-eager", "--optimization-level", "--compilation-config", "--attention-backend",
    "--enable-prefix-caching", "--async-scheduling", "--safetensors-load-strategy", "--load-format", "--speculative-config",
    "--served-model-name", "--trust-remote-code", "--quantization", "--dtype", "--seed", "--port", "--host", "--api-key",
    "--generation-config", "--reasoning-parser", "--tool-call-parser", "--enable-auto-tool-choice", "--chat-template",
    "--swap-space", "--cpu-offload-gb", "--disable-log-stats", "--enable-log-requests", "--disable-custom-all-reduce",
    "--enable-chunked-prefill", "--tokenizer", "--revision", "--download-dir", "--hf-overrides", "--distributed-executor-backend",
    "--uvicorn-log-level", "--enable-sleep-mode", "--api-server-count", "--limit-mm-per-prompt", "--structured-outputs-config",
)  # fmt: skip
"""Options that have kept their names; where the engine's own --help is at hand, that is asked instead."""


OF_SGLANG: tuple[str, ...] = (
    "--model-path", "--tokenizer-path", "--host", "--port", "--mem-fraction-static", "--tp-size", "--dp-size", "--ep-size", "--pp-size",
    "--context-length", "--max-running-requests", "--max-total-tokens", "--chunked-prefill-size", "--attention-backend", "--quantization",
    "--kv-cache-dtype", "--trust-remote-code", "--served-model-name", "--disable-cuda-graph", "--cuda-graph-max-bs", "--enable-metrics",
    "--disable-radix-cache", "--speculative-algorithm", "--speculative-draft-model-path", "--speculative-num-steps",
    "--speculative-eagle-topk", "--speculative-num-draft-tokens", "--reasoning-parser", "--tool-call-parser", "--api-key",
    "--decode-log-interval", "--watchdog-timeout", "--enable-torch-compile", "--load-format", "--dtype", "--random-seed",
)  # fmt: skip
OF_LLAMACPP: tuple[str, ...] = (
    "--model", "--ctx-size", "--n-gpu-layers", "--batch-size", "--ubatch-size", "--threads", "--parallel", "--host", "--port", "--alias",
    "--flash-attn", "--cont-batching", "--metrics", "--slots", "--props", "--api-key", "--mmap", "--no-mmap", "--mlock", "--tensor-split",
    "--split-mode", "--main-gpu", "--cache-type-k", "--cache-type-v", "--spec-type", "--spec-draft-n-max", "--spec-draft-n-min",
    "--model-draft", "--jinja", "--chat-template", "--reasoning-format", "--n-predict", "--seed", "--temp",
)  # fmt: skip
OF_ENGINE: dict[str | None, tuple[str, ...]] = {"sglang": OF_SGLANG, "llama.cpp": OF_LLAMACPP}


def nearest_option(argument: str, known: Iterable[str] | None = None, engine: str | None = None) -> str | None:
    """What to write instead; None where nothing is near. `known`: the options of the version at hand, where they were asked for."""
    name = argument.partition("=")[0].replace("_", "-")
    if name in RENAMED:
        return RENAMED[name]
    listed = list(known) if known is not None else list(OF_ENGINE.get(engine, KNOWN))
    close = difflib.get_close_matches(name, listed, n=1, cutoff=0.6)
    return close[0] if close and close[0] != name else None
