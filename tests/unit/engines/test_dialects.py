"""Lines of SGLang and llama.cpp, whose log it is, who speaks in it, and the figures in what went wrong."""

from __future__ import annotations

import pytest

from service.domain.reasons import Reason
from workers.engines.any_log import AnyLog
from workers.engines.base import LoadPhase
from workers.engines.figures import figures_of
from workers.engines.llamacpp_log import LlamacppLoadLog
from workers.engines.log_line import messages
from workers.engines.ngram_family import ngram_family
from workers.engines.remedies import remedy
from workers.engines.renamed import nearest_option
from workers.engines.sglang_log import SglangLoadLog
from workers.engines.speakers import Speaker, speaker
from workers.engines.spec_lines import spec_line
from workers.engines.warning_words import word_on


def any_log(*lines: str) -> AnyLog:
    log = AnyLog()
    for raw in lines:
        for line in messages(raw):
            log.take(line)
    return log


def test_a_whole_load_of_sglang() -> None:
    log = SglangLoadLog()
    phases = []
    for line in (
        "[2025-10-16 11:30:00] server_args=ServerArgs(model_path='m', port=30000, attention_backend='fa3')",
        "[2025-10-16 11:30:10 TP0] Init torch distributed begin.",
        "[2025-10-16 11:30:12 TP0] Load weight begin. avail mem=69.21 GB",
        "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.00s/it]",
        "[2025-10-16 11:30:40 TP0] Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem=61.08 GB, mem usage=8.13 GB.",
        "[2025-10-16 11:30:41 TP0] KV Cache is allocated. #tokens: 834615, K size: 24.12 GB, V size: 24.12 GB",
        "[2025-10-16 11:30:41 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=13.95 GB",
        "Capturing batches (bs=216 avail_mem=10.30 GB):  42%|████▏     | 22/52 [00:03<00:04,  7.39it/s]",
        "[2025-10-16 11:30:50 TP0] Capture cuda graph end. Time elapsed: 9.10 s. mem usage=1.20 GB. avail mem=12.70 GB.",
        "[2025-10-16 11:30:51] max_total_num_tokens=834615, chunked_prefill_size=8192, context_len=40960",
        "[2025-10-16 11:30:52] INFO:     Application startup complete.",
    ):
        progress = log.feed([line])
        if progress.phase not in phases:
            phases.append(progress.phase)
    assert phases == [
        LoadPhase.ENGINE_INIT,
        LoadPhase.WEIGHTS_LOADING,
        LoadPhase.KV_CACHE_INIT,
        LoadPhase.CUDA_GRAPH_CAPTURE,
        LoadPhase.WARMUP,
        LoadPhase.API_STARTUP,
    ]
    assert not log.progress.started_serving
    assert log.progress.facts == {
        "port": 30000,
        "attention_backend": "fa3",
        "weights_gib": 8.13,
        "architecture": "Qwen3ForCausalLM",
        "kv_cache_tokens": 834615,
        "graph_capture_seconds": 9.1,
        "max_model_len": 40960,
    }
    assert log.feed(["[2025-10-16 11:30:53] The server is fired up and ready to roll!"]).started_serving


def test_a_whole_load_of_llama_cpp() -> None:
    log = LlamacppLoadLog()
    log.feed(
        [
            "build: 6401 (c4df49a4) with cc (Ubuntu) 13.3.0 for x86_64-linux-gnu",
            "main: HTTP server is listening, hostname: 127.0.0.1, port: 8080, http threads: 15",
            "load_tensors: loading model tensors, this can take a while... (mmap = true)",
            "load_tensors: offloaded 33/33 layers to GPU",
            "." * 30,
        ]
    )
    assert (log.progress.engine_version, log.progress.phase, log.progress.done, log.progress.percent) == (
        "6401",
        LoadPhase.WEIGHTS_LOADING,
        30,
        30.0,
    )
    log.feed(["llama_context: n_ctx         = 8192", "common_init_from_params: warming up the model with an empty run - please wait ..."])
    assert log.progress.phase == LoadPhase.WARMUP
    assert log.feed(["main: server is listening on http://127.0.0.1:8080 - starting the main loop"]).started_serving
    assert log.progress.facts == {"port": 8080, "gpu_layers": 33, "layers": 33, "kv_cache_tokens": 8192}


@pytest.mark.parametrize(
    ("line", "engine"),
    [
        ("(EngineCore_DP0 pid=2) INFO 10-22 09:33:49 [kv_cache_utils.py:1087] GPU KV cache size: 162,704 tokens", "vllm"),
        ("INFO 07-24 08:25:45 model_runner.py:1110] Starting to load model /m...", "vllm"),
        ("[2025-10-16 11:30:41] KV Cache is allocated. #tokens: 834615, K size: 24.12 GB, V size: 24.12 GB", "sglang"),
        ("srv    load_model: loading model '/m.gguf'", "llama.cpp"),
        ("Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.00s/it]", None),
        ("hello", None),
    ],
)
def test_whose_log_it_is(line: str, engine: str | None) -> None:
    assert any_log(line).engine == engine


def test_an_engine_that_is_sure_is_read_alone() -> None:
    log = any_log(*["(EngineCore pid=2) INFO 10-22 09:33:49 [x.py:1] EngineCore"] * 3, "srv  load_model: loading model 'x'")
    assert (log.kind, log.engine) == ("vllm", "vllm")


@pytest.mark.parametrize(
    ("process", "expected"),
    [
        ("EngineCore_0", Speaker("engine_core", index=0, pid=7)),
        ("Worker_DP1_TP3_EP11", Speaker("worker", pid=7, dp=1, tp=3, ep=11)),
        ("Worker_PP1_TP0", Speaker("worker", pid=7, pp=1, tp=0)),
        ("VllmWorker-3", Speaker("worker", index=3, pid=7)),
        ("DPCoordinator", Speaker("coordinator", pid=7)),
        ("TP1", Speaker("worker", pid=7, tp=1)),
        ("Somebody", Speaker(None, pid=7)),
    ],
)
def test_who_speaks(process: str, expected: Speaker) -> None:
    assert speaker(process, 7) == expected


def test_levels_colours_and_sgl_tags() -> None:
    [line] = messages("\x1b[1;36m(EngineCore_DP0 pid=2050)\x1b[0;0m \x1b[33mWARNING\x1b[0m 10-22 09:33:49 [core.py:7] careful\x00\x07")
    assert (line.level, line.process, line.pid, line.source, line.message) == ("WARNING", "EngineCore_DP0", 2050, "core.py:7", "careful")
    [line] = messages("[2025-10-16 11:30:40 DP0 TP1] Load weight begin.")
    assert (line.process, line.stamp, line.message) == ("DP0_TP1", "2025-10-16 11:30:40", "Load weight begin.")


def test_a_long_bar_ends_with_its_last_frame() -> None:
    frames = "".join(f"\rCapturing CUDA graphs (decode, FULL): {n % 100}%|██| {n}/9999 [00:07<00:09,  4.01it/s]" for n in range(9999))
    log = any_log("(Worker_TP0 pid=1) INFO 10-22 09:33:49 [x.py:1] Starting to load model m..." + frames)
    assert (log.progress.done, log.progress.total) == (9998, 9999)


def test_a_card_that_another_fills() -> None:
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.25 GiB of which 1.00 GiB "
        "is free. Process 11 has 70.00 GiB memory in use. Including non-PyTorch memory, this process has 8.00 GiB memory in use. "
        "Of the allocated memory 7.50 GiB is allocated by PyTorch, and 10.00 MiB is reserved by PyTorch but unallocated."
    )
    facts = figures_of(Reason.CUDA_OUT_OF_MEMORY, text, {})
    assert (facts["gpu"], facts["own_gib"], facts["others_gib"]) == (1, 8.0, 70.0)
    assert "other processes hold 70.0 GiB" in remedy(Reason.CUDA_OUT_OF_MEMORY, facts)


def test_out_of_memory_of_older_pytorch() -> None:
    text = (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.69 GiB total capacity; 22.10 GiB already "
    )
    text += "allocated; 9.69 MiB free; 22.15 GiB reserved in total by PyTorch)"
    facts = figures_of(Reason.CUDA_OUT_OF_MEMORY, text, {})
    assert facts == {"tried_gib": 0.02, "gpu": 0, "total_gib": 23.69, "own_pytorch_gib": 22.1, "free_gib": 0.009}


@pytest.mark.parametrize(
    ("reason", "facts", "words"),
    [
        (Reason.KV_CACHE_TOO_SMALL, {"estimated_max_model_len": 34736, "requested_max_model_len": 262144}, "max-model-len to 34736"),
        (
            Reason.GPU_MEMORY_NOT_FREE_AT_START,
            {"free_gib": 111.99, "wanted_gib": 132.81, "not_free_gib": 27.81},
            "somebody holds 27.81 GiB",
        ),
        (Reason.BAD_ARGUMENTS, {"argument": "--max-model-lenn"}, "instead: --max-model-len"),
        (Reason.BAD_ARGUMENTS, {"argument": "--tensor-parallel-size", "gpus": 4, "world_size": 8}, "8 GPUs are asked for and 4 are there"),
        (Reason.PORT_IN_USE, {"port": 8001}, "port 8001"),
        (Reason.EXEC_FAILED, {"path": "/x", "errno_text": "Permission denied"}, "/x: Permission denied"),
        (Reason.DISK_FULL, {}, "free space"),
    ],
)
def test_remedies_name_the_figure(reason: Reason, facts: dict[str, object], words: str) -> None:
    assert words in remedy(reason, facts)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "  Input should be 'ngram', 'medusa', 'eagle' [type=literal_error, input_value='ngrm', input_type=str]",
            "--speculative-config does not take ngrm; ngram is the nearest",
        ),
        (
            "vllm serve: error: argument --dtype: invalid choice: 'bfloat' (choose from 'auto', 'bfloat16')",
            "--dtype does not take bfloat; bfloat16 is the nearest",
        ),
    ],
)
def test_a_value_that_is_none_of_those_that_may_be(line: str, words: str) -> None:
    assert words in remedy(Reason.BAD_ARGUMENTS, figures_of(Reason.BAD_ARGUMENTS, line, {}))


def test_options_of_each_engine() -> None:
    assert nearest_option("--mem-fraction-statik", engine="sglang") == "--mem-fraction-static"
    assert nearest_option("--ctx-siz", engine="llama.cpp") == "--ctx-size"
    assert nearest_option("--zzzz") is None


@pytest.mark.parametrize(
    ("line", "length", "rate"),
    [
        ("Decode batch, #running-req: 1, #token: 9, accept len: 2.31, accept rate: 0.58, cuda graph: True, #queue-req: 0", 2.31, 0.58),
        ("Decode batch. #running-req: 1, #token: 9, accept len: 2.31, gen throughput (token/s): 120.50, #queue-req: 0", 2.31, None),
        ("slot print_timing: id  3 | task 0 | draft acceptance = 0.70000 (    7 accepted /    10 generated), mean len =  8.00", 8.0, 0.7),
        ("draft acceptance rate = 0.58824 (   10 accepted /    17 generated)", None, 0.58824),
        (
            (
                "Speculative metrics: Draft acceptance rate: 0.200, System efficiency: 0.167, Number of speculative tokens: 5, "
                "Number of accepted tokens: 1, Number of draft tokens: 5, Number of emitted tokens: 2."
            ),
            2.0,
            0.2,
        ),
        (
            (
                "SpecDecoding metrics: Draft acceptance rate: 62.5%, Mean acceptance length: 1.25, Accepted: 5 tokens, Drafted: 8 tokens, "
                "Per-position acceptance rate: 0.700, 0.550"
            ),
            2.25,
            0.625,
        ),
        (
            "SpecDecoding metrics: Mean acceptance length: nan, Accepted: 0 tokens, Drafted: 0 tokens, Avg Draft acceptance rate: nan%",
            None,
            None,
        ),
    ],
)
def test_summary_lines(line: str, length: float | None, rate: float | None) -> None:
    found = spec_line(line)
    assert found is not None
    assert (found["mean_acceptance_length"], found["draft_acceptance_rate"]) == (length, rate)
    assert found["status"] == ("never_drafted" if length is None and rate is None else "on")
    assert spec_line("INFO anything else") is None


@pytest.mark.parametrize(
    ("version", "runner", "method", "family"),
    [
        ("0.8.5", None, "ngram", "legacy"),
        ("0.10.0", None, "ngram", "legacy"),
        ("0.10.1", None, "ngram", "numba"),
        ("0.31.0", "V1", "ngram_gpu", "gpu_v1"),
        ("0.32.0", "V1", "ngram", "numba"),
        ("0.32.0", "V2", "ngram", "gpu_v2"),
        ("0.32.0", None, "ngram", None),
        (None, None, "ngram", None),
        ("0.32.0", "V2", "eagle3", None),
    ],
)
def test_families_of_ngram(version: str | None, runner: str | None, method: str, family: str | None) -> None:
    assert ngram_family(version, {"model_runner": runner}, method) == family


def test_a_word_on_a_warning() -> None:
    assert "0.14 refused" in str(
        word_on("min_p, logit_bias, and min_tokens parameters won't currently work with speculative decoding enabled.")
    )
    assert str(word_on("Referenced but unset environment variable evaluates to an empty string: free")).startswith("unset_variable: ")
    assert word_on("anything else") is None
