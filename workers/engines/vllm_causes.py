"""What vLLM prints when it dies, and what it means. Ranked, since the same death is reported by every process on its way up."""

from __future__ import annotations

import re

from service.domain.reasons import Reason
from workers.engines.common_causes import COMMON_CAUSES
from workers.engines.rules import Cause, Rank, causes

CAUSES: tuple[Cause, ...] = (
    *causes(
        Reason.GPU_MEMORY_NOT_FREE_AT_START,
        Rank.ROOT,
        r"Free memory on device .{0,100}on startup is less than desired GPU memory utilization",
    ),
    *causes(Reason.MEMORY_PROFILING_RACE, Rank.ROOT, r"Error in memory profiling\. Initial free memory"),
    *causes(
        Reason.KV_CACHE_TOO_SMALL,
        Rank.ROOT,
        r"No available memory for the cache blocks",
        r"To serve at least one request with the models?(?:'s)? max seq len",
        r"max seq len \(\d+\) is larger than the maximum number of tokens that can be stored in KV cache",
    ),
    *causes(
        Reason.CUDA_OUT_OF_MEMORY,
        Rank.ROOT,
        r"Failed to load model - not enough GPU memory",
        loading_only=False,
    ),
    *COMMON_CAUSES,
    *causes(
        Reason.BAD_ARGUMENTS,
        Rank.ROOT,
        r"prompt_lookup_min=.{0,40} must be <= prompt_lookup_max",
        r"num_speculative_tokens was provided but without speculative model",
        r"num_speculative_tokens:.{0,40} must be divisible by n_predict",
        r"Arctic Inference is required for suffix decoding",
        r"Custom logits processors are not supported when speculative decoding is enabled",
        r"^ValueError: (?:Unknown|Unsupported) (?:speculative|quantization) ",
        r"Bfloat16 is only supported on GPUs with compute capability",
    ),
    *causes(
        Reason.ENGINE_UNRESPONSIVE,
        Rank.GENERIC,
        r"RPC call to \S{1,80} timed out",
        r"TimeoutError: RPC call ",
        loading_only=False,
    ),
    *causes(
        Reason.ENGINE_DEAD,
        Rank.GENERIC,
        r"died unexpectedly \(exit code: -\d+\)",
        loading_only=False,
    ),
    *causes(Reason.LOAD_TIMEOUT, Rank.GENERIC, r"Timed out waiting for engine(?: core processe)?s to (?:start|send initial message)"),
    *causes(
        Reason.ENGINE_DEAD,
        Rank.WRAPPER,
        r"EngineCore failed to start",
        r"EngineCore encountered a",
        r"Engine core initialization failed",
        r"WorkerProc (?:failed to start|hit an exception|initialization failed)",
        r"[Ww]orker proc \S+ died unexpectedly",
        r"Worker \S+ pid \d+ died, exit code: ",
        r"EngineDeadError",
        r"Engine (?:loop|process) (?:is not running|failed to start)|MQEngineDeadError|AsyncEngineDeadError",
        loading_only=False,
    ),
)

STOPPING = re.compile(
    r"\[shutdown\] API server: shutdown triggered|\[shutdown\] \w+: trigger received signal|^INFO: +Shutting down"
    r"|^KeyboardInterrupt: terminated$"
)
