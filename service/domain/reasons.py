"""Why an experiment or a request did not succeed: one enum, with a class, a sentence, a retry rule and a remedy each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from service.domain.status import Outcome


class ReasonClass(StrEnum):
    """Who or what has to change, for people."""

    CONFIG = "config"
    LOAD = "load"
    OOM = "oom"
    GPU = "gpu"
    INFRA = "infra"
    BENCH = "bench"
    WINDOW = "window"
    USER = "user"


class Reason(StrEnum):
    """Every known cause. New ones may join; none is renamed."""

    BAD_ARGUMENTS = "bad_arguments"
    UNIT_SYNTAX = "unit_syntax"
    MODEL_NOT_FOUND = "model_not_found"
    UNSUPPORTED_ARCHITECTURE = "unsupported_architecture"
    DRIVER_TOO_OLD = "driver_too_old"
    KV_CACHE_TOO_SMALL = "kv_cache_too_small"
    CUDA_OUT_OF_MEMORY = "cuda_out_of_memory"
    GPU_MEMORY_NOT_FREE_AT_START = "gpu_memory_not_free_at_start"
    MEMORY_PROFILING_RACE = "memory_profiling_race"
    HOST_OUT_OF_MEMORY = "host_out_of_memory"
    CORRUPT_OR_INCOMPLETE_WEIGHTS = "corrupt_or_incomplete_weights"
    NCCL_INIT_ERROR = "nccl_init_error"
    ENGINE_DEAD = "engine_dead"
    ENGINE_UNRESPONSIVE = "engine_unresponsive"
    CRASH_LOOP = "crash_loop"
    EXEC_FAILED = "exec_failed"
    NO_PROGRESS = "no_progress"
    LOAD_TIMEOUT = "load_timeout"
    COMMAND_FAILED = "command_failed"
    COMMAND_TIMEOUT = "command_timeout"
    SYSTEMD_START_TIMEOUT = "systemd_start_timeout"
    UNKILLABLE_PROCESS = "unkillable_process"
    PORT_IN_USE = "port_in_use"
    WRONG_SERVER_ON_PORT = "wrong_server_on_port"
    PORT_SHARED_WITH_ANOTHER_SERVER = "port_shared_with_another_server"
    SERVER_RESTARTED_DURING_RUN = "server_restarted_during_run"
    STALE_UNIT_DEFINITION = "stale_unit_definition"
    ORPHAN_PROCESS = "orphan_process"
    HELD_BY_OTHER_USER = "held_by_other_user"
    HELD_BY_UNKNOWN_PROCESS = "held_by_unknown_process"
    DRIVER_LIBRARY_MISMATCH = "driver_library_mismatch"
    GPU_LOST = "gpu_lost"
    GPU_HARDWARE_ERROR = "gpu_hardware_error"
    GPU_STATE_UNKNOWN = "gpu_state_unknown"
    HOST_UNREACHABLE = "host_unreachable"
    CONNECTION_REFUSED = "connection_refused"
    CONNECTION_LOST = "connection_lost"
    HOST_KEY_CHANGED = "host_key_changed"
    HOST_KEY_UNKNOWN = "host_key_unknown"
    HELPER_MISSING = "helper_missing"
    HOOK_FAILED = "hook_failed"
    AUTH_FAILED = "auth_failed"
    SUDO_PASSWORD_REQUIRED = "sudo_password_required"  # noqa: S105 - a cause, not a secret
    PERMISSION_DENIED = "permission_denied"
    REMOTE_COMMAND_FAILED = "remote_command_failed"
    USER_BUS_UNAVAILABLE = "user_bus_unavailable"
    DISK_FULL = "disk_full"
    CLAIM_LOST = "claim_lost"
    HOST_REBOOTED = "host_rebooted"
    PRODUCTION_STARTED_BY_HAND = "production_started_by_hand"
    INTERNAL_ERROR = "internal_error"
    CONTEXT_OVERFLOW = "context_overflow"
    REQUEST_REFUSED = "request_refused"
    ABORTED_BY_SERVER = "aborted_by_server"
    TRUNCATED_STREAM = "truncated_stream"
    EMPTY_OUTPUT = "empty_output"
    REQUEST_TIMEOUT = "request_timeout"
    BENCH_ERROR = "bench_error"
    WINDOW_CLOSED = "window_closed"
    DEPENDENCY_FAILED = "dependency_failed"
    CANCELLED_BY_USER = "cancelled_by_user"


@dataclass(frozen=True)
class Retry:
    """How often the same experiment may be tried again by itself, and how long to wait before."""

    times: int
    after_s: float = 0.0


NEVER = Retry(0)
ONCE = Retry(1, 30.0)
TWICE = Retry(2, 60.0)


@dataclass(frozen=True)
class Rule:
    """What is known of one reason."""

    reason_class: ReasonClass
    sentence: str
    remedy: str
    retry: Retry = NEVER
    outcome: Outcome = Outcome.FAILED


_C, _L, _O, _G, _I, _B, _W = (
    ReasonClass.CONFIG,
    ReasonClass.LOAD,
    ReasonClass.OOM,
    ReasonClass.GPU,
    ReasonClass.INFRA,
    ReasonClass.BENCH,
    ReasonClass.WINDOW,
)
_R = Reason

RULES: dict[Reason, Rule] = {
    _R.BAD_ARGUMENTS: Rule(
        _C, "the engine refused its arguments", "correct the argument named in the evidence; the engine's --help lists the valid ones"
    ),
    _R.UNIT_SYNTAX: Rule(_C, "the unit file does not say what was meant", "correct the line named in the evidence"),
    _R.MODEL_NOT_FOUND: Rule(_C, "the model is not where the experiment says", "check the path and that the engine's user may read it"),
    _R.UNSUPPORTED_ARCHITECTURE: Rule(_C, "this engine version does not know the model's architecture", "use another engine version"),
    _R.DRIVER_TOO_OLD: Rule(_C, "the GPU driver is older than the engine needs", "update the driver, or use an engine built for this one"),
    _R.KV_CACHE_TOO_SMALL: Rule(
        _O,
        "the KV cache does not fit the requested context",
        "lower max-model-len to the estimate in the evidence, or give the engine more memory",
    ),
    _R.CUDA_OUT_OF_MEMORY: Rule(_O, "the engine ran out of GPU memory", "lower gpu-memory-utilization or max-num-seqs, or use more GPUs"),
    _R.GPU_MEMORY_NOT_FREE_AT_START: Rule(
        _O, "GPU memory was not free when the engine started", "find out who holds it; a retry follows once it is proven free", ONCE
    ),
    _R.MEMORY_PROFILING_RACE: Rule(_O, "GPU memory changed while the engine was measuring it", "a retry usually helps", TWICE),
    _R.HOST_OUT_OF_MEMORY: Rule(
        _O, "the host ran out of memory and killed the engine", "give the engine less host memory (swap space, CPU offload, workers)"
    ),
    _R.CORRUPT_OR_INCOMPLETE_WEIGHTS: Rule(_L, "a weight file is damaged or incomplete", "copy the model again and compare checksums"),
    _R.NCCL_INIT_ERROR: Rule(
        _L, "the GPUs could not join for collective communication", "free /dev/shm, look at NCCL_DEBUG=INFO, check P2P settings", TWICE
    ),
    _R.ENGINE_DEAD: Rule(_L, "the engine died", "read the engine's log above the evidence for the root cause"),
    _R.ENGINE_UNRESPONSIVE: Rule(_L, "the engine lives but generates nothing", "read the engine's log; restart it"),
    _R.CRASH_LOOP: Rule(_L, "the unit starts and dies again and again", "set Restart=no and read its first failure"),
    _R.EXEC_FAILED: Rule(_L, "the engine's program could not be started", "check the executable's path and permissions"),
    _R.NO_PROGRESS: Rule(
        _L,
        "the load showed no sign of progress for longer than load.stall",
        "read the last log lines; raise load.stall if such a pause is normal",
    ),
    _R.LOAD_TIMEOUT: Rule(_L, "the load took longer than load.timeout", "raise load.timeout, or find out what makes the load slow"),
    _R.COMMAND_FAILED: Rule(_L, "the command did not end with exit status 0", "read its last lines in the evidence, and the whole log"),
    _R.COMMAND_TIMEOUT: Rule(
        _L, "the command took longer than engine.timeout", "raise engine.timeout, or find out what makes the command slow"
    ),
    _R.SYSTEMD_START_TIMEOUT: Rule(_L, "systemd gave up waiting for the unit to start", "use Type=exec, or raise TimeoutStartSec"),
    _R.UNKILLABLE_PROCESS: Rule(_L, "a process survives SIGKILL", "the host needs a person, most likely a reboot"),
    _R.PORT_IN_USE: Rule(_L, "another program owns the experiment's port", "stop that program, or choose another engine.port"),
    _R.WRONG_SERVER_ON_PORT: Rule(_L, "a server that is not ours answers on the port", "stop that server, or choose another engine.port"),
    _R.PORT_SHARED_WITH_ANOTHER_SERVER: Rule(_L, "two servers share the port", "stop the other server, or choose another engine.port"),
    _R.SERVER_RESTARTED_DURING_RUN: Rule(
        _L,
        "the server was restarted while it was measured",
        "find out why it restarted; the numbers may not be used",
        outcome=Outcome.INVALID,
    ),
    _R.STALE_UNIT_DEFINITION: Rule(
        _L,
        "the running process does not have the arguments that were asked for",
        "run systemctl daemon-reload and look at the unit's drop-ins",
    ),
    _R.ORPHAN_PROCESS: Rule(_G, "a left-over engine process holds GPU memory", "end that process"),
    _R.HELD_BY_OTHER_USER: Rule(_G, "another user's process holds GPU memory", "ask its owner, named in the evidence"),
    _R.HELD_BY_UNKNOWN_PROCESS: Rule(_G, "something unknown holds GPU memory", "look on the host, containers included"),
    _R.DRIVER_LIBRARY_MISMATCH: Rule(_G, "the GPU driver and its library differ in version", "reboot the host, or reload the driver"),
    _R.GPU_LOST: Rule(_G, "a GPU fell off the bus", "reboot the host and look at the card"),
    _R.GPU_HARDWARE_ERROR: Rule(_G, "a GPU reports a hardware error", "look at the kernel's Xid lines; the card may need service"),
    _R.GPU_STATE_UNKNOWN: Rule(
        _G, "the GPUs could not be proven free", "make the GPU tool answer on this host; unknown is never taken for free"
    ),
    _R.HOST_UNREACHABLE: Rule(_I, "the host does not answer", "check the host and the network", TWICE),
    _R.CONNECTION_REFUSED: Rule(_I, "the connection was refused", "check that the server is running and the port is right", TWICE),
    _R.CONNECTION_LOST: Rule(_I, "the connection broke", "check the network and whether the server still runs", TWICE),
    _R.HOST_KEY_CHANGED: Rule(_I, "the host's key is not the pinned one", "find out why before you trust the new one"),
    _R.HOST_KEY_UNKNOWN: Rule(
        _I, "the host's key is not pinned yet", "compare the fingerprint with the host's own, then run `expctl host trust NAME`"
    ),
    _R.HELPER_MISSING: Rule(_I, "expctl-host is not installed on the host, or too old", "run `expctl host install NAME`"),
    _R.HOOK_FAILED: Rule(_I, "a hook of the host did not succeed", "see its output in the evidence; production was not touched"),
    _R.AUTH_FAILED: Rule(
        _I,
        "the login or the API key was refused",
        "check the key or the password; an engine that wants a key has it from `engine.api_key: env:NAME`",
    ),
    _R.SUDO_PASSWORD_REQUIRED: Rule(_I, "sudo asks for a password", "add the sudoers line; nobody is there to type at night"),
    _R.PERMISSION_DENIED: Rule(_I, "permission denied", "check owner and mode of what the evidence names"),
    _R.REMOTE_COMMAND_FAILED: Rule(_I, "a command on the host failed", "see its output in the evidence"),
    _R.USER_BUS_UNAVAILABLE: Rule(_I, "the user's systemd is not reachable", "enable lingering for the account"),
    _R.DISK_FULL: Rule(_I, "the disk is full", "free space on what the evidence names"),
    _R.CLAIM_LOST: Rule(_I, "another worker took the host over", "nothing: the other worker goes on with it", ONCE),
    _R.HOST_REBOOTED: Rule(_I, "the host was rebooted", "find out why", ONCE),
    _R.PRODUCTION_STARTED_BY_HAND: Rule(_I, "somebody started production", "nothing: who starts production by hand wins"),
    _R.INTERNAL_ERROR: Rule(_I, "expctl itself failed", "read the worker's log; this is a bug worth reporting"),
    _R.CONTEXT_OVERFLOW: Rule(
        _B, "a prompt and its answer exceed the model's context", "lower bench.max_tokens or shorten the prompt", outcome=Outcome.INVALID
    ),
    _R.REQUEST_REFUSED: Rule(_B, "the server refused the request", "correct what the evidence names", outcome=Outcome.INVALID),
    _R.ABORTED_BY_SERVER: Rule(_B, "the server ended a request early", "read the engine's log", outcome=Outcome.INVALID),
    _R.TRUNCATED_STREAM: Rule(
        _B, "an answer ended without [DONE] and without a finish reason", "read the engine's log", outcome=Outcome.INVALID
    ),
    _R.EMPTY_OUTPUT: Rule(_B, "an answer had no output", "check the prompt, the chat template and the model", outcome=Outcome.INVALID),
    _R.REQUEST_TIMEOUT: Rule(
        _B,
        "a request took longer than its time limit",
        "read the engine's log; raise the limit if the answer is that long",
        outcome=Outcome.INVALID,
    ),
    _R.BENCH_ERROR: Rule(_B, "the benchmark could not be run as asked", "see the evidence", outcome=Outcome.INVALID),
    _R.WINDOW_CLOSED: Rule(_W, "the host's window closed before the experiment was done", "it is queued again for the next window", ONCE),
    _R.DEPENDENCY_FAILED: Rule(_W, "an experiment it waits for did not succeed", "retry that one first"),
    _R.CANCELLED_BY_USER: Rule(ReasonClass.USER, "cancelled", "nothing", outcome=Outcome.CANCELLED),
}
"""Total over `Reason`; a test holds it so."""
