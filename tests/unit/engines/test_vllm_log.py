"""vLLM's log: recordings of real loads, and lines of versions and machines that are not at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.domain.reasons import Reason
from workers.engines.base import LoadPhase
from workers.engines.vllm_log import VllmLoadLog

DATA = Path(__file__).parents[2] / "data" / "vllm-0.32"
CORE = "(EngineCore pid=7) ERROR 11-30 03:52:17 [core.py:1510] "
WRAPPERS = (
    CORE + "EngineCore failed to start.",
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore_DP0': 1}",
)


def recording(name: str) -> list[str]:
    return (DATA / f"{name}.log").read_bytes().decode().split("\n")


def read(*lines: str) -> VllmLoadLog:
    log = VllmLoadLog()
    log.feed(lines)
    return log


@pytest.mark.parametrize(
    ("name", "reason", "evidence"),
    [
        ("too_long", Reason.BAD_ARGUMENTS, "Value error, User-specified max_model_len (100000) is greater"),
        ("bad_flag", Reason.BAD_ARGUMENTS, "vllm: error: unrecognized arguments: --no-such-flag 3"),
        ("bad_json", Reason.BAD_ARGUMENTS, "vllm serve: error: argument --speculative-config"),
        ("kv0", Reason.KV_CACHE_TOO_SMALL, "ValueError: No available memory for the cache blocks."),
        ("port_in_use", Reason.PORT_IN_USE, "OSError: [Errno 98] Address already in use"),
        ("truncated", Reason.CORRUPT_OR_INCOMPLETE_WEIGHTS, "safetensors._safetensors_rust.SafetensorError: Error while deserializing"),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_recorded_failures(name: str, reason: Reason, evidence: str, at_once: bool) -> None:
    log = VllmLoadLog()
    if at_once:
        log.feed(recording(name))
    else:
        for line in recording(name):
            log.feed([line])
    assert log.progress.reason == reason
    assert log.progress.evidence.startswith(evidence)
    assert not log.progress.started_serving


def test_a_recorded_good_load_with_traffic_and_an_ordered_end() -> None:
    log = VllmLoadLog()
    phases = []
    for line in recording("good_ngram_with_traffic"):
        progress = log.feed([line])
        if progress.phase is not None and progress.phase not in phases:
            phases.append(progress.phase)
    assert log.progress.started_serving
    assert log.progress.reason is None
    assert log.progress.evidence is None
    assert log.progress.engine_version == "0.32.0"
    assert phases == [
        LoadPhase.ENGINE_INIT,
        LoadPhase.WEIGHTS_LOADING,
        LoadPhase.KV_CACHE_INIT,
        LoadPhase.WARMUP,
        LoadPhase.API_STARTUP,
    ]
    assert log.progress.facts == {
        "architecture": "LlamaForCausalLM",
        "max_model_len": 2048,
        "model_runner": "V1",
        "weights_loading_seconds": 0.03,
        "kv_cache_tokens": 262144,
        "max_concurrency": 128.0,
        "init_engine_seconds": 0.87,
        "port": 8000,
    }
    assert "min_p and logit_bias parameters won't work with speculative decoding." in log.progress.warnings
    assert len(log.progress.warnings) == len(set(log.progress.warnings))


@pytest.mark.parametrize(
    ("line", "phase", "position"),
    [
        ("INFO 04-20 16:25:45 [api_server.py:981] vLLM API server version 0.8.5", LoadPhase.ENGINE_INIT, (None, None, None)),
        (
            "\rLoading safetensors checkpoint shards:  45% Completed | 29/64 [01:10<01:24,  2.4s/it]",
            LoadPhase.WEIGHTS_LOADING,
            (29, 64, 45.0),
        ),
        (
            "(Worker pid=3) (Worker_TP0 pid=3) \rLoading pt checkpoint shards: 100% Completed | 2/2 [00:01<00:00]",
            LoadPhase.WEIGHTS_LOADING,
            (2, 2, 100.0),
        ),
        ("Multi-thread loading shards:  10% Completed | 1/10 [00:01<00:09,  1.00s/it]", LoadPhase.WEIGHTS_LOADING, (1, 10, 10.0)),
        ("Prefetching checkpoint files: 40% (12/29)", LoadPhase.WEIGHTS_LOADING, (12, 29, 40.0)),
        (
            "(Worker_TP0 pid=3) INFO 10-20 08:40:01 [backends.py:1] Dynamo bytecode transform time: 8.21 s",
            LoadPhase.TORCH_COMPILE,
            (None, None, None),
        ),
        ("INFO 10-20 08:40:01 [monitor.py:1] Initial profiling/warmup run took 3.50 s", LoadPhase.PROFILING_WARMUP, (None, None, None)),
        ("INFO 10-20 08:40:01 [x.py:1] GPU KV cache size: 399,104 tokens", LoadPhase.KV_CACHE_INIT, (None, None, None)),
        (
            (
                "\rCapturing CUDA graphs (decode, FULL):   0%|          | 0/67 [00:00<?, ?it/s]"
                "\rCapturing CUDA graphs (decode, FULL):  45%|████▍     | 30/67 [00:07<00:09,  4.01it/s]"
            ),
            LoadPhase.CUDA_GRAPH_CAPTURE,
            (30, 67, 45.0),
        ),
        ("Capturing CUDA graph shapes: 100%|██████████| 67/67 [00:21<00:00,  3.10it/s]", LoadPhase.CUDA_GRAPH_CAPTURE, (67, 67, 100.0)),
        (
            "INFO 10-20 08:40:01 [core.py:1] init engine (profile, create kv cache, warmup model) took 88.15 seconds",
            LoadPhase.WARMUP,
            (None, None, None),
        ),
        ("INFO 10-20 08:40:01 [x.py:1] Starting vLLM API server 0 on http://0.0.0.0:8000", LoadPhase.API_STARTUP, (None, None, None)),
    ],
)
def test_lines_that_show_how_far_it_is(line: str, phase: LoadPhase, position: tuple[int | None, int | None, float | None]) -> None:
    progress = read(line).progress
    assert progress.phase == phase
    assert (progress.done, progress.total, progress.percent) == position


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("Model loading took 14.9876 GiB memory and 35.123456 seconds", {"weights_gib": 14.9876, "model_loading_seconds": 35.123456}),
        ("Model loading took 14.9876 GiB and 35.1 seconds", {"weights_gib": 14.9876, "model_loading_seconds": 35.1}),
        ("torch.compile takes 44.6 s in total", {"torch_compile_seconds": 44.6}),
        ("[model] torch.compile took 40.10 s in total", {"torch_compile_seconds": 40.1}),
        ("Available KV cache memory: 55.12 GiB", {"available_kv_cache_gib": 55.12}),
        (
            "Maximum concurrency for 16,384 tokens per request: 24.36x",
            {"max_model_len": 16384, "max_concurrency": 24.36},
        ),
        ("Graph capturing finished in 28 secs, took 0.44 GiB", {"graph_capture_seconds": 28.0, "graph_memory_gib": 0.44}),
        ("init engine (profile, create kv cache, warmup model) took 88.15 s (compilation: 40.1 s)", {"init_engine_seconds": 88.15}),
    ],
)
def test_figures(line: str, facts: dict[str, object]) -> None:
    assert read(f"(Worker_TP0 pid=3) INFO 10-20 08:40:01 [x.py:1] {line}").progress.facts == facts


def test_a_draft_model_is_a_stage_of_its_own_and_its_time_is_added() -> None:
    log = read(
        "INFO 10-20 08:40:01 [m.py:1] Starting to load model big...",
        "INFO 10-20 08:40:02 [l.py:1] Loading weights took 10.50 seconds",
        "INFO 10-20 08:40:03 [m.py:1] Loading drafter model...",
        "\rLoading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.00s/it]",
        "INFO 10-20 08:40:04 [l.py:1] Loading weights took 1.25 seconds",
    )
    assert log.progress.stage == "drafter"
    assert log.progress.facts["weights_loading_seconds"] == 11.75


def test_a_late_line_of_another_worker_does_not_turn_the_load_back() -> None:
    log = read(
        "INFO 10-20 08:40:01 [x.py:1] GPU KV cache size: 399,104 tokens",
        "(Worker_TP3 pid=9) INFO 10-20 08:40:01 [x.py:1] Loading weights took 12.34 seconds",
    )
    assert log.progress.phase == LoadPhase.KV_CACHE_INIT


def test_a_message_glued_to_a_bar_is_read() -> None:
    log = read(
        "\rCapturing CUDA graphs (decode, FULL): 100%|██████████| 67/67 [00:21<00:00,  3.10it/s]"
        "(Worker_TP0 pid=3) INFO 10-20 08:40:01 [x.py:1] Graph capturing finished in 28 secs, took 0.44 GiB"
    )
    assert log.progress.facts["graph_capture_seconds"] == 28.0


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            "ValueError: Free memory on device cuda:0 (64.66/94.97 GiB) on startup is less than desired GPU memory utilization (0.9).",
            Reason.GPU_MEMORY_NOT_FREE_AT_START,
        ),
        (
            "ValueError: Free memory on device (1.0/94.97 GiB) on startup is less than desired GPU memory utilization (0.9).",
            Reason.GPU_MEMORY_NOT_FREE_AT_START,
        ),
        ("AssertionError: Error in memory profiling. Initial free memory 1 GiB, current free memory 2 GiB.", Reason.MEMORY_PROFILING_RACE),
        (
            "ValueError: To serve at least one request with the model's max seq len (131072), (16.0 GiB KV cache is needed",
            Reason.KV_CACHE_TOO_SMALL,
        ),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", Reason.CUDA_OUT_OF_MEMORY),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", Reason.CUDA_OUT_OF_MEMORY),
        (
            "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes",
            Reason.HOST_OUT_OF_MEMORY,
        ),
        ("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:94, unhandled cuda error", Reason.NCCL_INIT_ERROR),
        (
            "host:1:2 [0] NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x, error: No space left on device (28)",
            Reason.NCCL_INIT_ERROR,
        ),
        (
            "ValueError: Model architectures ['KimiForCausalLM'] are not supported for now. Supported architectures: dict_keys([])",
            Reason.UNSUPPORTED_ARCHITECTURE,
        ),
        ("ValueError: Invalid repository ID or local directory specified: '/no/model'.", Reason.MODEL_NOT_FOUND),
        ("OSError: /no/model does not appear to have a file named config.json.", Reason.MODEL_NOT_FOUND),
        ('FileNotFoundError: No such file or directory: "/m/model-00002-of-00064.safetensors"', Reason.CORRUPT_OR_INCOMPLETE_WEIGHTS),
        ("ValueError: World size (8) is larger than the number of available GPUs (4) in this node.", Reason.BAD_ARGUMENTS),
        ("ValueError: 30 must be divisible by tensor parallel size (8)", Reason.BAD_ARGUMENTS),
        ("OSError: [Errno 28] No space left on device: '/root/.cache/vllm'", Reason.DISK_FULL),
        ("RuntimeError: The NVIDIA driver on your system is too old (found version 12020).", Reason.DRIVER_TOO_OLD),
    ],
)
@pytest.mark.parametrize("prefix", ["", CORE, "(EngineCore_0 pid=2) ", "(Worker pid=3) (Worker_TP0 pid=3) ERROR 01-01 01:01:01 [x.py:1] "])
def test_root_causes_win_over_wrappers_on_either_side(line: str, reason: Reason, prefix: str) -> None:
    progress = read("(Worker pid=3) ERROR 01-01 01:01:01 [x.py:1] WorkerProc failed to start.", prefix + line, *WRAPPERS).progress
    assert progress.reason == reason
    assert progress.evidence == line[:500]


def test_figures_of_a_cache_that_is_too_small() -> None:
    facts = read(
        CORE
        + "ValueError: To serve at least one request with the models's max seq len (131072), (16.0 GiB KV cache is needed, which is larger "
        "than the available KV cache memory (9.2 GiB). Based on the available memory, the estimated maximum model length is 75312."
    ).progress.facts
    assert facts == {"requested_max_model_len": 131072, "needed_gib": 16.0, "available_gib": 9.2, "estimated_max_model_len": 75312}


def test_a_rank_that_ran_out_of_memory_is_the_cause_of_the_others_broken_talk() -> None:
    progress = read(
        "(Worker_TP1 pid=4) ERROR 01-01 01:01:01 [x.py:1] torch.distributed.DistBackendError: NCCL error in: x",
        "(Worker_TP0 pid=3) ERROR 01-01 01:01:02 [x.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    ).progress
    assert progress.reason == Reason.CUDA_OUT_OF_MEMORY


def test_an_unknown_exception_is_the_evidence_where_only_wrappers_speak() -> None:
    progress = read(CORE + "EngineCore failed to start.", CORE + "KeyError: 'model.layers.61.mlp'", *WRAPPERS).progress
    assert (progress.reason, progress.evidence) == (Reason.ENGINE_DEAD, "KeyError: 'model.layers.61.mlp'")
    progress = read(CORE + "KeyError: 'first'", CORE + "ValueError: second", *WRAPPERS).progress
    assert progress.evidence == "KeyError: 'first'"


def test_wrappers_alone_mean_that_the_engine_died() -> None:
    progress = read(*WRAPPERS).progress
    assert progress.reason == Reason.ENGINE_DEAD
    assert progress.evidence == "EngineCore failed to start."


def test_an_engine_that_dies_while_it_serves() -> None:
    progress = read("INFO:     Application startup complete.", CORE + "EngineCore encountered a fatal error.").progress
    assert progress.started_serving
    assert progress.reason == Reason.ENGINE_DEAD
    progress = read("INFO:     Application startup complete.", CORE + "torch.OutOfMemoryError: CUDA out of memory.").progress
    assert progress.reason == Reason.CUDA_OUT_OF_MEMORY


@pytest.mark.parametrize(
    "line",
    [
        "(APIServer pid=1) INFO 11-30 03:36:06 [x.py:1] non-default args: {'note': 'CUDA out of memory'}",
        "(APIServer pid=1) WARNING 11-30 03:36:06 [x.py:1] This can cause errors like `OSError: [Errno 98] Address already in use`",
        "INFO 11-30 03:36:06 [x.py:1] No available shared memory broadcast block found in 60 seconds.",
        "[rank0]:[W1130 03:36:21 ProcessGroupNCCL.cpp:1] Warning: WARNING: destroy_process_group() was not called",
        "",
        "   \r  ",
    ],
)
def test_lines_that_are_no_failure(line: str) -> None:
    assert read(line).progress.reason is None


@pytest.mark.parametrize(
    "line", ["pydantic_core.ValidationError: 1 validation error for ChatCompletionRequest", "vllm: error: unrecognized"]
)
def test_a_bad_request_is_no_bad_argument_once_it_serves(line: str) -> None:
    assert read("INFO:     Application startup complete.", line).progress.reason is None


def test_a_cause_inside_a_validation_error_is_the_cause() -> None:
    progress = read(
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
        "  Value error, Invalid repository ID or local directory specified: '/no/model'.",
    ).progress
    assert progress.reason == Reason.MODEL_NOT_FOUND


def test_memory_of_the_reader_is_bounded() -> None:
    log = VllmLoadLog()
    log.feed(f"WARNING 11-30 03:36:06 [x.py:1] number {number} {'x' * 5000}" for number in range(1000))
    assert len(log.progress.warnings) == 50
    assert max(map(len, log.progress.warnings)) == 500
