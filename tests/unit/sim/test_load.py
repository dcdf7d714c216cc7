"""The load, the command line and the end of a simulated engine."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.sim.simulated import NGRAM, SimServer, run, until
from workers.engines.vllm_log import VllmLoadLog
from workers.sim.state import holdings

Serve = Callable[..., SimServer]


def test_a_load_refuses_connections_until_it_is_ready(serve: Serve) -> None:
    began = time.monotonic()
    server = serve("--max-model-len=131072", NGRAM, LOAD_SECONDS="1")
    server.wait_for("Completed")
    with pytest.raises(ConnectionRefusedError):
        server.request("GET", "/health")
    # The port is taken all the same.
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", server.port))
    server.ready()
    assert 0.9 < time.monotonic() - began < 4
    assert server.request("GET", "/health") == (200, "")


def test_a_load_says_what_vllm_says(serve: Serve) -> None:
    server = serve("--max-model-len=131072", "--tensor-parallel-size", "8", NGRAM).ready()
    pid = server.process.pid
    assert server.output.startswith("SIMULATION: an imitation of vLLM 0.32.0")
    places = [
        server.output.index(text)
        for text in (
            "version 0.32.0",
            "non-default args: {'model_tag': '/models/m'",
            f"(EngineCore pid={pid}) INFO",
            "Initializing a V1 LLM engine (v0.32.0) with config:",
            "min_p and logit_bias parameters won't work with speculative decoding.",
            "Starting to load model /models/m...",
            "\rLoading safetensors checkpoint shards:   0% Completed | 0/4 [00:00<?, ?it/s]\n",
            "\rLoading safetensors checkpoint shards:  50% Completed | 2/4 [",
            "Loading weights took ",
            "Model loading took 0.50 GiB memory and ",
            "torch.compile took ",
            "Available KV cache memory: 1.00 GiB",
            "GPU KV cache size: 262,144 tokens, Maximum concurrency for 131,072 tokens per request: 2.00x",
            "\rCapturing CUDA graphs (decode, FULL): 100%|██████████| 35/35 [",
            "Graph capturing finished in ",
            "init engine (profile, create kv cache, warmup model) took ",
            f"Starting vLLM server on http://127.0.0.1:{server.port}",
            "INFO:     Application startup complete.\n",
        )
    ]
    assert places == sorted(places)
    graphs = server.output[server.output.index("Capturing CUDA graphs") :].partition("\n")[0]
    assert graphs.count("\r") >= 4, "the whole bar is one line"


def test_no_bars_and_no_compilation_where_they_are_switched_off(serve: Serve) -> None:
    server = serve("--no-use-tqdm-on-load", "--enforce_eager").ready()
    assert "Completed |" not in server.output
    assert "torch.compile" not in server.output
    assert "CUDA graphs" not in server.output


def test_term_ends_it_within_a_second(serve: Serve, tmp_path: Path) -> None:
    server = serve("--tensor-parallel-size=8").ready()
    assert [held.pid for held in holdings(tmp_path / "state")] == [server.process.pid]
    began = time.monotonic()
    server.process.terminate()
    assert server.wait() == 0
    assert time.monotonic() - began < 1.5
    assert "[shutdown] API server: shutdown triggered" in server.output
    assert server.output.endswith("INFO:     Application shutdown complete.\n")
    assert holdings(tmp_path / "state") == []


def test_term_ends_it_during_load_too(serve: Serve) -> None:
    server = serve(LOAD_SECONDS="8")
    server.wait_for("Completed")
    server.process.terminate()
    assert server.wait() == 0


def test_it_hangs_on_demand_and_still_ends_at_term(serve: Serve) -> None:
    server = serve(PROFILE="kimi-k2.5", FAULT="hang_at=45")
    server.wait_for(" 45% Completed | 29/64")
    with pytest.raises(AssertionError, match="waited in vain"):
        until(lambda: server.process.poll() is not None, timeout=0.5)
    server.process.terminate()
    assert server.wait() == 0
    assert " 46% Completed" not in server.output


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("oom_at_load", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.19 GiB."),
        (
            "kv_cache_too_small",
            "ValueError: To serve at least one request with the model's max seq len (131072), (0.50 GiB KV cache is needed",
        ),
    ],
)
def test_a_load_fails_on_demand(serve: Serve, tmp_path: Path, fault: str, line: str) -> None:
    server = serve("--max-model-len=131072", FAULT=fault)
    assert server.wait() == 1
    assert line in server.output
    assert server.output.index(line) < server.output.index("EngineCore failed to start.")
    assert server.output.endswith("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n")
    assert holdings(tmp_path / "state") == []


def test_a_second_engine_finds_no_free_memory(serve: Serve) -> None:
    serve("--tensor-parallel-size=8").ready()
    second = serve("--tensor-parallel-size=8")
    assert second.wait() == 1
    assert "Free memory on device cuda:0 (7.70/95.59 GiB) on startup is less than desired GPU memory utilization (0.92" in second.output


def test_a_deaf_process_stays_behind_until_it_is_killed(serve: Serve, tmp_path: Path) -> None:
    server = serve("--tensor-parallel-size=8", FAULT="ignore_term").ready()
    group = server.process.pid
    os.killpg(group, signal.SIGTERM)
    assert server.wait() == 0
    (left,) = holdings(tmp_path / "state")
    assert left.pid != group
    assert os.getpgid(left.pid) == group
    os.killpg(group, signal.SIGKILL)
    until(lambda: holdings(tmp_path / "state") == [])


def test_the_port_of_another_program(serve: Serve, tmp_path: Path) -> None:
    first = serve().ready()
    answer = run("workers.sim", "serve", "m", "--host=127.0.0.1", f"--port={first.port}", folder=tmp_path)
    assert answer.returncode == 1
    assert answer.stderr.endswith("OSError: [Errno 98] Address already in use\n")


@pytest.mark.parametrize(
    ("flag", "status", "text"),
    [
        ("--no-such-flag=3", 2, "vllm: error: unrecognized arguments: --no-such-flag=3"),
        ("--speculative-model=[ngram]", 2, "vllm: error: unrecognized arguments: --speculative-model=[ngram]"),
        (
            '--speculative-config={"method":',
            2,
            'vllm serve: error: argument --speculative-config/-sc: Value {"method": cannot be converted to',
        ),
        ("--port=x", 2, "vllm serve: error: argument --port: invalid int value: 'x'"),
        ("--max-model-len=long", 2, "vllm serve: error: argument --max-model-len: invalid"),
        ('-sc={"num_speculative_tokens":5}', 1, "Value error, num_speculative_tokens was provided but without speculative model."),
        ('-sc={"method":"ngram"}', 1, "Value error, Expected num_speculative_tokens to be greater than zero (None)."),
        (
            '-sc={"method":"ngram","num_speculative_tokens":5,"prompt_lookup_max":3,"prompt_lookup_min":5}',
            1,
            "Value error, prompt_lookup_min=5 must be <= prompt_lookup_max=3",
        ),
        ("--tensor-parallel-size=16", 1, "World size (16) is larger than the number of available GPUs (8) in this node."),
    ],
)
def test_bad_command_lines(tmp_path: Path, flag: str, status: int, text: str) -> None:
    answer = run("workers.sim", "serve", "m", flag, folder=tmp_path)
    assert (answer.returncode, text in answer.stderr) == (status, True), answer.stderr
    assert answer.stderr.startswith("usage: vllm" if status == 2 else "Traceback (most recent call last):")


@pytest.mark.parametrize("knobs", [{"FAULT": "oom"}, {"FAULT": "truncate"}, {"FAULT": "no_usage@every=2"}, {"PROFILE": "nothing"}])
def test_a_mistyped_knob_is_refused(tmp_path: Path, knobs: dict[str, str]) -> None:
    answer = run("workers.sim", "serve", "m", folder=tmp_path, **knobs)
    assert answer.returncode == 2
    assert f"EXPCTL_SIM_{next(iter(knobs))}" in answer.stderr


def test_our_own_reader_understands_the_log(serve: Serve) -> None:
    server = serve("--max-model-len=131072", NGRAM).ready()
    log = VllmLoadLog()
    progress = log.feed(server.output.split("\n"))
    assert (progress.started_serving, progress.engine_version, progress.reason) == (True, "0.32.0", None)


@pytest.mark.parametrize(
    ("fault", "flag", "reason"),
    [
        ("oom_at_load", "--seed=1", "cuda_out_of_memory"),
        ("kv_cache_too_small", "--seed=1", "kv_cache_too_small"),
        ("", "--no-such-flag", "bad_arguments"),
        ("", '-sc={"method":"ngram","num_speculative_tokens":5,"prompt_lookup_max":3,"prompt_lookup_min":5}', "bad_arguments"),
        ("", "--gpu-memory-utilization=1.2", "gpu_memory_not_free_at_start"),
    ],
)
def test_our_own_reader_finds_the_cause(serve: Serve, fault: str, flag: str, reason: str) -> None:
    server = serve(flag, FAULT=fault)
    assert server.wait() in {1, 2}
    progress = VllmLoadLog().feed(server.output.split("\n"))
    assert progress.reason is not None
    assert progress.reason.value == reason
