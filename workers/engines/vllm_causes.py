"""What vLLM prints when it dies, and what it means. Ranked, since the same death is reported by every process on its way up."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from service.domain.reasons import Reason


class Rank(IntEnum):
    """The lower one wins; among equals the first in the log."""

    ROOT = 0  # names what has to change
    CONSEQUENCE = 1  # often the echo of another rank's death
    GENERIC = 2  # says that something was refused, the details follow or stand above
    WRAPPER = 3  # says only that a child died: "see root cause above"
    NOTHING = 4


@dataclass(frozen=True)
class Cause:
    """A line that tells why."""

    pattern: re.Pattern[str]
    reason: Reason
    rank: Rank
    loading_only: bool
    """False where it also ends an engine that already served."""


def _causes(reason: Reason, rank: Rank, *patterns: str, loading_only: bool = True) -> list[Cause]:
    return [Cause(re.compile(pattern), reason, rank, loading_only) for pattern in patterns]


CAUSES: tuple[Cause, ...] = (
    *_causes(
        Reason.GPU_MEMORY_NOT_FREE_AT_START,
        Rank.ROOT,
        r"Free memory on device .*on startup is less than desired GPU memory utilization",
    ),
    *_causes(Reason.MEMORY_PROFILING_RACE, Rank.ROOT, r"Error in memory profiling\. Initial free memory"),
    *_causes(
        Reason.KV_CACHE_TOO_SMALL,
        Rank.ROOT,
        r"No available memory for the cache blocks",
        r"To serve at least one request with the model(?:'s)? max seq len",
        r"max seq len \(\d+\) is larger than the maximum number of tokens that can be stored in KV cache",
    ),
    *_causes(
        Reason.CUDA_OUT_OF_MEMORY,
        Rank.ROOT,
        r"(?:CUDA|HIP) out of memory",
        r"Failed to load model - not enough GPU memory",
        r"CUDA error: out of memory",
        loading_only=False,
    ),
    *_causes(
        Reason.HOST_OUT_OF_MEMORY,
        Rank.ROOT,
        r"Out of memory: Killed process",
        r"oom-kill:",
        r"DefaultCPUAllocator: (?:can't|not enough|can not) allocate memory",
        r"\[Errno 12\] Cannot allocate memory",
        r"^MemoryError\b",
        r"std::bad_alloc",
        loading_only=False,
    ),
    *_causes(
        Reason.CORRUPT_OR_INCOMPLETE_WEIGHTS,
        Rank.ROOT,
        r"SafetensorError",
        r"Error while deserializing header",
        r"incomplete metadata, file not fully covered",
        r"PytorchStreamReader failed",
        r"UnpicklingError",
        r"weights were not initialized from checkpoint",
        r"No such file or directory: .*\.(?:safetensors|bin|pt)\b",
    ),
    *_causes(
        Reason.UNSUPPORTED_ARCHITECTURE,
        Rank.ROOT,
        r"Model architectures? .* (?:are|is) not supported for now",
        r"was supported in vLLM until",
        r"has no vLLM implementation",
        r"Transformers does not recognize this architecture",
    ),
    *_causes(
        Reason.MODEL_NOT_FOUND,
        Rank.ROOT,
        r"Invalid repository ID or local directory specified",
        r"Cannot find any model weights with",
        r"does not appear to have a file named",
        r"is not a local folder and is not a valid model identifier",
        r"Repository Not Found for url",
        r"Repo id must (?:be|use)",
        r"Can't load the configuration of",
        r"Cannot access gated repo|You are trying to access a gated repo",
        r"LocalEntryNotFoundError|cannot find the requested files in the (?:disk|local) cache",
        r"We couldn't connect to 'https://huggingface\.co'",
    ),
    *_causes(
        Reason.DRIVER_TOO_OLD,
        Rank.ROOT,
        r"The NVIDIA driver on your system is too old",
        r"CUDA driver version is insufficient for CUDA runtime version",
    ),
    *_causes(Reason.DRIVER_LIBRARY_MISMATCH, Rank.ROOT, r"Driver/library version mismatch"),
    *_causes(Reason.GPU_LOST, Rank.ROOT, r"GPU is lost", r"fallen off the bus", loading_only=False),
    *_causes(Reason.GPU_HARDWARE_ERROR, Rank.ROOT, r"uncorrectable ECC error", r"CUDA error: hardware", loading_only=False),
    *_causes(Reason.PORT_IN_USE, Rank.ROOT, r"\[Errno 98\].*[Aa]ddress already in use", r"error while attempting to bind on address"),
    *_causes(
        Reason.BAD_ARGUMENTS,
        Rank.ROOT,
        r"^(?:vllm|api_server\.py)(?: \S+)*: error: ",
        r"must be divisible by tensor parallel size",
        r"World size \(\d+\) is larger than the number of available GPUs",
        r"prompt_lookup_min=.* must be <= prompt_lookup_max",
        r"num_speculative_tokens was provided but without speculative model",
        r"num_speculative_tokens:.* must be divisible by n_predict",
        r"Arctic Inference is required for suffix decoding",
        r"Custom logits processors are not supported when speculative decoding is enabled",
    ),
    # A rank that dies of something else makes the others fail to talk to it.
    *_causes(
        Reason.NCCL_INIT_ERROR,
        Rank.CONSEQUENCE,
        r"NCCL error",
        r"NCCL WARN Error while creating shared memory",
        r"nccl(?:UnhandledCudaError|SystemError|InternalError|RemoteError)",
        r"Dist(?:Backend|Store|Network)Error",
        r"Watchdog caught collective operation timeout",
        r"EADDRINUSE",
        loading_only=False,
    ),
    *_causes(Reason.DISK_FULL, Rank.CONSEQUENCE, r"\[Errno 28\] No space left on device", r"\[Errno 122\] Disk quota exceeded"),
    *_causes(
        Reason.ENGINE_DEAD,
        Rank.GENERIC,
        r"nvcc: not found",
        r"Could not find nvcc",
        r"ninja: build stopped",
        r"No such file or directory: 'ninja'",
    ),
    *_causes(
        Reason.ENGINE_DEAD,
        Rank.GENERIC,
        r"died unexpectedly \(exit code: -\d+\)",
        r"RPC call to \S+ timed out",
        r"CUDA error: ",
        loading_only=False,
    ),
    *_causes(Reason.LOAD_TIMEOUT, Rank.GENERIC, r"Timed out waiting for engine(?: core processe)?s to (?:start|send initial message)"),
    *_causes(
        Reason.ENGINE_DEAD,
        Rank.WRAPPER,
        r"EngineCore failed to start",
        r"EngineCore encountered a",
        r"Engine core initialization failed",
        r"WorkerProc (?:failed to start|hit an exception|initialization failed)",
        r"Worker proc \S+ died unexpectedly",
        r"EngineDeadError",
        loading_only=False,
    ),
)

VALIDATION = re.compile(r"\d+ validation errors? for \w+")
"""Begins pydantic's report; what was wrong follows in `VALIDATION_DETAIL`."""
VALIDATION_DETAIL = re.compile(r"^\s+(Value error, |Assertion failed, |Input should |Unexpected keyword |.*\[type=)")
EXCEPTION = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception)(?:: .+)?$")
STOPPING = re.compile(r"\[shutdown\] API server: shutdown triggered|\[shutdown\] \w+: trigger received signal|^INFO: +Shutting down")
"""An ordered end begins: what follows is the noise of taking things down, not a failure."""


def cause_of(message: str, *, loading: bool) -> Cause | None:
    """The most telling cause that a line names."""
    found = [cause for cause in CAUSES if (loading or not cause.loading_only) and cause.pattern.search(message)]
    return min(found, key=lambda cause: cause.rank, default=None)
