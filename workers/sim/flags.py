"""The command line of `vllm serve`, as far as experiments use it, and how it refuses what it does not know."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

USAGE = "usage: vllm serve [model_tag] [options]\n"
TOP_USAGE = (
    "usage: vllm [-h] [-v]\n"
    "            {chat,complete,serve,launch,bench,collect-env,download-kernels,preload,run-batch,snapshot}\n"
    "            ...\n"
)


def _words(names: str) -> list[str]:
    return names.split()


SHORT = {"tensor-parallel-size": "-tp", "pipeline-parallel-size": "-pp", "data-parallel-size": "-dp", "speculative-config": "-sc"}
INTEGERS = _words(
    "port tensor-parallel-size pipeline-parallel-size data-parallel-size api-server-count max-num-seqs max-num-batched-tokens"
    " max-num-partial-prefills long-prefill-token-threshold block-size seed max-logprobs stream-interval num-gpu-blocks-override"
    " max-parallel-loading-workers distributed-timeout-seconds optimization-level data-parallel-rank"
)
NUMBERS = ["gpu-memory-utilization", "swap-space", "cpu-offload-gb"]
JSONS = _words(
    "speculative-config compilation-config hf-overrides override-generation-config default-chat-template-kwargs kv-transfer-config"
    " limit-mm-per-prompt mm-processor-kwargs model-loader-extra-config additional-config profiler-config attention-config kernel-config"
)
TEXTS = _words(
    "model host uds max-model-len dtype quantization kv-cache-dtype kv-cache-memory-bytes load-format safetensors-load-strategy"
    " tokenizer tokenizer-mode revision tokenizer-revision code-revision download-dir config-format reasoning-parser tool-call-parser"
    " chat-template chat-template-content-format generation-config attention-backend moe-backend all2all-backend"
    " distributed-executor-backend scheduling-policy runner convert uvicorn-log-level root-path"
    " prefix-caching-hash-algo mamba-ssm-cache-dtype per-request-spec-decode-metrics config ssl-keyfile ssl-certfile"
    " spec-method spec-model spec-tokens show-hidden-metrics-for-version otlp-traces-endpoint"
)
SWITCHES = _words(
    "trust-remote-code enforce-eager enable-prefix-caching enable-chunked-prefill enable-expert-parallel enable-eplb async-scheduling"
    " disable-custom-all-reduce disable-log-stats enable-log-requests disable-uvicorn-access-log"
    " enable-auto-tool-choice enable-prompt-tokens-details enable-force-include-usage enable-server-load-tracking enable-sleep-mode"
    " enable-per-request-metrics use-tqdm-on-load skip-tokenizer-init calculate-kv-scales disable-cascade-attn enable-lora"
    " disable-hybrid-kv-cache-manager return-tokens-as-token-ids disable-fastapi-docs enable-request-id-headers enable-dbo"
    " language-model-only disable-sliding-window headless kv-cache-metrics cudagraph-metrics enable-scale-out"
)
LISTS = ["served-model-name", "api-key", "lora-modules", "allowed-origins", "middleware", "cuda-graph-sizes"]
MULTIPLES = {"k": 1000, "m": 10**6, "g": 10**9, "K": 1024, "M": 2**20, "G": 2**30}


class ConfigRefused(Exception):
    """A configuration that parses but cannot be: vLLM ends with a traceback and exit status 1."""

    def __init__(self, model: str, text: str, value: object) -> None:
        super().__init__(text)
        kind = type(value).__name__
        self.message = (
            f"pydantic_core._pydantic_core.ValidationError: 1 validation error for {model}\n"
            f"  Value error, {text} [type=value_error, input_value={value!r:.60}, input_type={kind}]\n"
        )


@dataclass(frozen=True)
class ServeConfig:
    """What the command line said."""

    model: str
    served_names: tuple[str, ...]
    host: str
    port: int
    gpu_count: int
    max_model_len: int
    gpu_memory_utilization: float
    api_keys: tuple[str, ...]
    speculative: dict[str, Any] | None
    prefix_caching: bool
    eager: bool
    log_stats: bool
    access_log: bool
    force_usage: bool
    bars: bool
    given: dict[str, Any]
    """Every value that was given, for the log's `non-default args`."""

    @property
    def drafts(self) -> int:
        """Tokens drafted a step; 0 without speculation."""
        return int(self.speculative["num_speculative_tokens"]) if self.speculative else 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"{USAGE}vllm serve: error: {message}\n")
        raise SystemExit(2)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"Value {text} cannot be converted to {json.loads}.") from None


def build_parser() -> argparse.ArgumentParser:
    """Every flag that the simulation knows. Most of them it only accepts."""
    parser = _Parser(prog="vllm serve", allow_abbrev=False, argument_default=argparse.SUPPRESS, add_help=False)
    parser.add_argument("model_tag", nargs="?")
    for names, kind in ((INTEGERS, int), (NUMBERS, float), (JSONS, _json), (TEXTS, str)):
        for name in names:
            parser.add_argument(f"--{name}", *([SHORT[name]] if name in SHORT else []), type=kind)
    for name in SWITCHES:
        parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction)
    for name in LISTS:
        parser.add_argument(f"--{name}", nargs="+")
    return parser


def parse_serve(argv: Sequence[str], env_api_key: str | None = None) -> ServeConfig:
    """A checked configuration. SystemExit(2) for a bad command line, ConfigRefused for a bad configuration."""
    known, unknown = build_parser().parse_known_args([_dashes(item) for item in argv])
    if unknown:
        sys.stderr.write(f"{TOP_USAGE}vllm: error: unrecognized arguments: {' '.join(unknown)}\n")
        raise SystemExit(2)
    given = vars(known)
    model = given.get("model_tag") or given.get("model") or "Qwen/Qwen3-0.6B"
    return ServeConfig(
        model=model,
        served_names=tuple(given.get("served_model_name") or [model]),
        host=given.get("host", "0.0.0.0"),  # noqa: S104 - vLLM's own default
        port=given.get("port", 8000),
        gpu_count=given.get("tensor_parallel_size", 1) * given.get("pipeline_parallel_size", 1) * given.get("data_parallel_size", 1),
        max_model_len=_length(given.get("max_model_len", "262144")),
        gpu_memory_utilization=given.get("gpu_memory_utilization", 0.92),
        api_keys=tuple(given.get("api_key") or ([env_api_key] if env_api_key else [])),
        speculative=_speculative(given),
        prefix_caching=given.get("enable_prefix_caching", True),
        eager=given.get("enforce_eager", False),
        log_stats=not given.get("disable_log_stats", False),
        access_log=not given.get("disable_uvicorn_access_log", False),
        force_usage=given.get("enable_force_include_usage", False),
        bars=given.get("use_tqdm_on_load", True),
        given={**given, "model": model},
    )


def _dashes(item: str) -> str:
    """`--max_model_len` is taken for `--max-model-len`, as vLLM does."""
    if not item.startswith("--"):
        return item
    name, equals, value = item.partition("=")
    return name.replace("_", "-") + equals + value


def _length(text: str) -> int:
    """`131072`, `128k` (thousands) or `128K` (1024s)."""
    try:
        return int(float(text[:-1]) * MULTIPLES[text[-1]]) if text[-1:] in MULTIPLES else int(text)
    except ValueError:
        build_parser().error(f"argument --max-model-len: invalid human_readable_int value: {text!r}")


def _speculative(given: dict[str, Any]) -> dict[str, Any] | None:
    config = given.get("speculative_config")
    if config is None:
        return None
    if not isinstance(config, dict):
        raise ConfigRefused("VllmConfig", "speculative_config must be a dictionary", config)
    if not config.get("method") and not config.get("model"):
        raise ConfigRefused("SpeculativeConfig", "num_speculative_tokens was provided but without speculative model.", config)
    number = config.get("num_speculative_tokens")
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ConfigRefused("SpeculativeConfig", f"Expected num_speculative_tokens to be greater than zero ({number}).", config)
    if str(config.get("method")) in {"ngram", "ngram_gpu"}:
        _check_lookup(config)
    return config


def _check_lookup(config: dict[str, Any]) -> None:
    """Both default to 5; one alone sets the other."""
    low, high = config.get("prompt_lookup_min"), config.get("prompt_lookup_max")
    high = (low if low is not None else 5) if high is None else high
    low = high if low is None else low
    for name, value in (("prompt_lookup_min", low), ("prompt_lookup_max", high)):
        if not isinstance(value, int) or value < 1:
            raise ConfigRefused("SpeculativeConfig", f"{name}={value} must be > 0", config)
    if low > high:
        raise ConfigRefused("SpeculativeConfig", f"prompt_lookup_min={low} must be <= prompt_lookup_max={high}", config)
