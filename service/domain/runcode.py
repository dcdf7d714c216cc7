"""What in an experiment runs code of its submitter's choice: whoever queues it needs the scope `run-code`.

The rule is a list of what does not. A key, an argument or a variable that is not named here counts as code: of the hundreds that
engines have, some load modules, plugins, shared objects, pickles or a whole file of further arguments, and the next version has more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from service.domain.access import Access, Scope
from service.domain.spec import Spec

PLAIN_KEYS: Mapping[str, frozenset[str]] = {
    "vllm": frozenset({"kind", "from_unit", "port", "keep_port", "gpus", "api_key"}),
    # Its api_key is not among them: it would send a secret of the worker to an address of the submitter's choice.
    "endpoint": frozenset({"kind", "base_url", "served_model_name", "metrics_url"}),
    "llamacpp": frozenset({"kind", "port", "gpus", "api_key"}),
    "sglang": frozenset({"kind", "port", "gpus", "api_key"}),
}
"""Kind of engine -> its keys that run nothing, whatever they say. A command has none: it is code."""

WORDS = frozenset({"model", "served_model_name"})
"""Keys whose value is a word of the command line: plain unless it would be read as an argument."""

PLAIN_ARGUMENTS: Mapping[str, frozenset[str]] = {
    "vllm": frozenset({
        "all2all-backend", "api-server-count", "async-scheduling", "attention-backend", "block-size", "calculate-kv-scales",
        "cpu-offload-gb", "cuda-graph-sizes", "cudagraph-capture-sizes", "data-parallel-size", "decode-context-parallel-size",
        "disable-cascade-attn", "disable-chunked-mm-input", "disable-custom-all-reduce", "disable-hybrid-kv-cache-manager",
        "disable-log-requests", "disable-log-stats", "disable-sliding-window", "dtype", "enable-auto-tool-choice",
        "enable-chunked-prefill", "enable-dbo", "enable-eplb", "enable-expert-parallel", "enable-log-requests", "enable-lora",
        "enable-prefix-caching", "enable-prompt-tokens-details", "enable-reasoning", "enable-sleep-mode", "enforce-eager",
        "gpu-memory-utilization", "guided-decoding-backend", "host", "kv-cache-dtype", "kv-cache-memory-bytes",
        "kv-sharing-fast-prefill", "language-model-only", "long-prefill-token-threshold", "mamba-cache-dtype", "max-log-len",
        "max-cudagraph-capture-size", "max-logprobs", "max-long-partial-prefills", "max-lora-rank", "max-loras", "max-model-len",
        "max-num-batched-tokens", "max-num-partial-prefills", "max-num-seqs", "max-parallel-loading-workers", "max-seq-len-to-capture",
        "mm-encoder-tp-mode", "mm-processor-cache-gb", "moe-backend", "num-gpu-blocks-override", "num-scheduler-steps",
        "optimization-level", "pipeline-parallel-size", "prefill-context-parallel-size", "prefix-caching-hash-algo", "quantization",
        "reasoning-parser", "runner", "safetensors-load-strategy", "scheduling-policy", "seed", "skip-mm-profiling",
        "stream-interval", "swap-space", "task", "tensor-parallel-size", "tool-call-parser", "uvicorn-log-level",
    }),
    "llamacpp": frozenset({
        "batch-size", "cache-ram", "cache-reuse", "cache-type-k", "cache-type-v", "cont-batching", "cpu-moe", "ctx-size", "flash-attn",
        "fit", "gpu-layers", "host", "jinja", "kv-offload", "kv-unified", "log-colors", "log-timestamps", "main-gpu", "metrics", "mlock",
        "mmap", "n-cpu-moe", "n-gpu-layers", "n-predict", "no-kv-offload", "no-mmap", "no-warmup", "no-webui", "numa", "op-offload",
        "parallel", "poll", "prio", "reasoning-budget", "reasoning-format", "rope-freq-base", "rope-freq-scale", "rope-scale",
        "rope-scaling", "seed", "slots", "split-mode", "swa-full", "temp", "tensor-split", "threads", "threads-batch", "threads-http",
        "timeout", "top-k", "top-p", "ubatch-size", "verbosity", "warmup",
    }),
    "sglang": frozenset({
        "attention-backend", "chunked-prefill-size", "context-length", "cuda-graph-max-bs", "decode-log-interval", "disable-cuda-graph",
        "disable-custom-all-reduce", "disable-overlap-schedule", "disable-radix-cache", "dp-size", "dtype", "enable-dp-attention",
        "enable-metrics", "enable-mixed-chunk", "enable-torch-compile", "ep-size", "grammar-backend", "host", "kv-cache-dtype",
        "log-level", "log-requests", "max-prefill-tokens", "max-running-requests", "max-total-tokens", "mem-fraction-static", "page-size",
        "pp-size", "quantization", "random-seed", "reasoning-parser", "sampling-backend", "schedule-conservativeness", "schedule-policy",
        "stream-interval", "tool-call-parser", "torch-compile-max-bs", "tp-size", "watchdog-timeout",
    }),
}  # fmt: skip
"""Kind of engine -> arguments that tune it and load nothing, as long as their value is plain too."""

PLAIN_VARIABLES = frozenset({
    "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_VISIBLE_DEVICES", "HF_HUB_OFFLINE",
    "MKL_NUM_THREADS", "NCCL_ALGO", "NCCL_BUFFSIZE", "NCCL_CUMEM_ENABLE", "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_IB_DISABLE",
    "NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_NTHREADS", "NCCL_NVLS_ENABLE",
    "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_PROTO", "NCCL_SHM_DISABLE", "NCCL_SOCKET_IFNAME", "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "TOKENIZERS_PARALLELISM", "TORCH_CUDA_ARCH_LIST", "TRANSFORMERS_OFFLINE",
    "VLLM_ATTENTION_BACKEND", "VLLM_DISABLE_COMPILE_CACHE", "VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_ENGINE_ITERATION_TIMEOUT_S",
    "VLLM_FLASH_ATTN_VERSION", "VLLM_LOGGING_LEVEL", "VLLM_RPC_TIMEOUT", "VLLM_SKIP_P2P_CHECK", "VLLM_SLEEP_WHEN_IDLE",
    "VLLM_USE_DEEP_GEMM", "VLLM_USE_FLASHINFER_SAMPLER", "VLLM_USE_V1", "VLLM_WORKER_MULTIPROC_METHOD",
})  # fmt: skip
"""Environment variables that tune and load nothing, as long as their value is plain. NCCL_NET_PLUGIN, say, is none of them."""

PLAIN_SPECULATION = frozenset({
    "num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min", "draft_tensor_parallel_size", "max_model_len", "quantization",
    "disable_by_batch_size", "disable_padded_drafter_batch", "enforce_eager", "seed",
    "draft-n-min", "draft-ngl", "draft-p-min", "draft-p-split", "draft-type-k", "draft-type-v", "ngram-map-k-min-hits",
    "ngram-map-k-size-m", "ngram-map-k-size-n", "ngram-mod-n-min", "ngram-simple-min-hits", "ngram-simple-size-m", "ngram-simple-size-n",
})  # fmt: skip
METHODS = frozenset({
    "ngram", "ngram_gpu", "eagle", "eagle3", "mtp", "deepseek_mtp", "medusa", "mlp_speculator", "draft_model", "suffix",
    "none", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache", "draft-simple", "draft-eagle3", "draft-mtp",
})  # fmt: skip
"""Others may name a class."""

SHOWN = 5
_PLAIN_TEXT = re.compile(r"(?!-)[A-Za-z0-9_:,=+.@-]*")
_DOTTED_NAME = re.compile(r"[A-Za-z_]\.[A-Za-z_]")


def allow_code(access: Access, *specs: Spec) -> None:
    """Forbidden where one of the experiments runs code and whoever queues it may not; says what in it does."""
    if access.may(Scope.RUN_CODE):
        return
    for spec in specs:
        found = code_in(spec)
        if found:
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            access.require(Scope.RUN_CODE, f"{spec.name}: {', '.join(found[:SHOWN])}{more} may run code of your choice on the host")


def code_in(spec: Spec) -> list[str]:
    """The keys of an experiment that run code of its submitter's choice, such as `engine.args.trust-remote-code`."""
    engine = spec.engine
    if engine.kind not in PLAIN_KEYS:
        return [f"engine.kind: {engine.kind}"]
    found = []
    for name, field in type(engine).model_fields.items():
        value = getattr(engine, name)
        if name in PLAIN_KEYS[engine.kind] or value == field.get_default(call_default_factory=True):
            continue
        if name == "args":
            found += [f"engine.args.{key}" for key, one in value.items() if not _plain_argument(engine.kind, key, one)]
        elif name == "env":
            found += [
                f"engine.env.{key}" for key, one in value.items() if key not in PLAIN_VARIABLES or not _plain(one) or one.startswith("env:")
            ]
        elif name == "speculative":
            found += [f"engine.speculative.{key}" for key in _speculation(value.model_dump(exclude_none=True))]
        elif name not in WORDS or value.startswith("-"):
            found.append(f"engine.{name}")
    return found


def _plain_argument(kind: str, name: str, value: Any) -> bool:
    """What is only taken out of a fork's command line adds nothing."""
    return value is None or (name.replace("_", "-") in PLAIN_ARGUMENTS.get(kind, ()) and _plain(value))


def _speculation(given: Mapping[str, Any]) -> Iterator[str]:
    for key, value in given.items():
        if key == "method":
            plain = value in METHODS
        elif key == "model":
            plain = isinstance(value, str) and not value.startswith("-")
        else:
            plain = key in PLAIN_SPECULATION and _plain(value)
        if not plain:
            yield key


def _plain(value: Any) -> bool:
    """A number, a switch, or a word that is neither a path, nor the dotted name of a class, nor an argument of its own."""
    if isinstance(value, list):
        return all(not isinstance(item, list) and _plain(item) for item in value)
    if isinstance(value, str):
        return _PLAIN_TEXT.fullmatch(value) is not None and _DOTTED_NAME.search(value) is None
    return value is None or isinstance(value, bool | int | float)
