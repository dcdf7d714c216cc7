"""The story against a real vLLM: `expctl up`, two experiment files, both measured, a verdict.

The engine is a CPU build with a tiny random model, so the figures mean nothing; what is proven is that every number we record
is the engine's own.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from expctl.client import Client
from tests.lab.local_service import LAB, expctl, free_port, results, run_all
from tests.lab.local_service import serving as up
from workers.engines.prometheus import read_counters

pytestmark = pytest.mark.lab

ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_DO_NOT_TRACK": "1"}

BASE = f"""\
name: tiny base
host: local
engine:
  kind: vllm
  executable: {LAB}/vllm/bin/vllm
  model: {LAB}/tiny
  served_model_name: tiny
  args:
    {{max-model-len: 2048, dtype: bfloat16, enforce-eager: true, generation-config: vllm, enable-prefix-caching: false}}
  env: {json.dumps(ENVIRONMENT)}
load: {{timeout: 10m, stall: 5m}}
bench: {{prompts: five, max_tokens: 64, concurrency: [1, 4], repeat: 2, warmup: 1}}
"""

NGRAM = BASE.replace("name: tiny base", "name: tiny ngram").replace(
    "load:", "  speculative: {method: ngram, num_speculative_tokens: 5, prompt_lookup_max: 4}\nload:"
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """`expctl up` as a user starts it; gives its address and the port of its engines."""
    assert (LAB / "vllm" / "bin" / "vllm").exists(), f"the lab's vLLM is missing: run tests/lab/make_vllm.py {LAB}"
    with up(tmp_path_factory.mktemp("data")) as found:
        yield found


@pytest.fixture(scope="module")
def night(service: tuple[str, int], tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[int]]:
    """Both experiments, submitted together and left alone."""
    server, _ = service
    return server, run_all(server, tmp_path_factory.mktemp("files"), {"base.yaml": BASE, "ngram.yaml": NGRAM}, "14m")


def test_both_succeed_one_after_the_other(night: tuple[str, list[int]]) -> None:
    server, ids = night
    with Client(server) as client:
        first, second = (client.experiment(one) for one in ids)
    assert [first["outcome"], second["outcome"]] == ["succeeded", "succeeded"]
    assert first["finished_at"] <= second["started_at"]
    for item in (first, second):
        assert item["facts"]["engine_version"].startswith("0.32.0")
        assert [step["name"] for step in item["steps"]] == ["clear", "launch", "load", "warm", "measure", "collect"]


def test_token_counts_are_the_servers_own(night: tuple[str, list[int]]) -> None:
    server, ids = night
    for one in ids:
        phases = results(server, one)["phases"]
        assert [phase["concurrency"] for phase in phases] == [1, 4]
        for phase in phases:
            assert phase["summary"]["valid"]
            assert len(phase["requests"]) == 10
            for request in phase["requests"]:
                assert request["tokens_from"] == "usage"
                assert request["finish_reason"] in {"length", "stop"}
                assert request["finish_reason"] == "stop" or request["completion_tokens"] == 64
            assert phase["summary"]["output_tokens"] == sum(request["completion_tokens"] for request in phase["requests"])


def test_speculation_is_off_in_one_and_on_in_the_other(night: tuple[str, list[int]]) -> None:
    server, ids = night
    base, ngram = (results(server, one)["phases"] for one in ids)
    for phase in base:
        for found in (phase["speculation"], *(request["speculation"] for request in phase["requests"] if request["speculation"])):
            assert (found["status"], found["warnings"]) == ("off", [])
            assert (found["mean_acceptance_length"], found["draft_acceptance_rate"], found["drafts"]) == (None, None, None)
    for phase in ngram:
        found = phase["speculation"]
        assert (found["status"], found["source"], found["comparable"]) == ("on", "prometheus", True)
        assert 1 < found["mean_acceptance_length"] <= 6
        assert len(found["per_position_acceptance"]) == 5


def test_which_proposer_ran_is_known(night: tuple[str, list[int]]) -> None:
    """Lengths mean the same only within a family; on a CPU it is the one that drafts where the text repeats itself."""
    server, ids = night
    with Client(server) as client:
        families = [client.experiment(one)["facts"].get("ngram_family") for one in ids]
    assert families == [None, "numba"]


def test_the_requests_add_up_to_the_phase(night: tuple[str, list[int]]) -> None:
    """Two ways to the same counters: the sum over single requests, and the change over the whole phase."""
    server, ids = night
    phase = results(server, ids[1])["phases"][0]
    for key in ("drafts", "draft_tokens", "accepted_tokens"):
        assert sum(request["speculation"][key] or 0 for request in phase["requests"]) == phase["speculation"][key]


def test_the_engines_log_was_copied_whole(night: tuple[str, list[int]]) -> None:
    server, ids = night
    log = expctl("logs", str(ids[1]), server=server).stdout
    assert "speculative_config=SpeculativeConfig(method='ngram'" in log
    assert log.index("Starting to load model") < log.index("Application startup complete") < log.index("POST /v1/chat/completions")
    assert "shutdown triggered" in log


def test_the_comparison_has_a_verdict(night: tuple[str, list[int]]) -> None:
    server, ids = night
    answer = expctl("compare", *map(str, ids), "--json", server=server)
    assert answer.returncode == 0, answer.stderr
    comparison = json.loads(answer.stdout)
    assert comparison["comparable"], comparison["why_not"]
    assert comparison["verdict"] in {"better", "worse", "no_difference_shown"}
    assert "engine.speculative.method" in comparison["spec_differences"] or "engine.speculative" in comparison["spec_differences"]


def test_nothing_is_left_behind(night: tuple[str, list[int]], service: tuple[str, int]) -> None:
    _, engine_port = service
    assert night
    assert not [p for p in psutil.process_iter(["cmdline"]) if f"--port {engine_port}" in " ".join(p.info["cmdline"] or [])]
    assert read_counters(f"http://127.0.0.1:{engine_port}/metrics") is None


COUNTERS = (
    "spec_decode_num_drafts",
    "spec_decode_num_draft_tokens",
    "spec_decode_num_accepted_tokens",
    "generation_tokens",
    "prompt_tokens",
)


def own_reading(address: str) -> dict[str, float]:
    """The engine's counters, read without any of our code for it."""
    page = httpx.get(f"{address}/metrics", timeout=10, trust_env=False).text
    return {
        name: sum(float(value) for value in re.findall(rf"^vllm:{name}_total{{[^}}]*}} (\S+)$", page, re.MULTILINE)) for name in COUNTERS
    }


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory, night: tuple[str, list[int]]) -> Iterator[str]:
    """A vLLM with n-gram speculation that the tests start by themselves."""
    assert night
    tmp_path = tmp_path_factory.mktemp("vllm")
    port = free_port()
    speculative = '{"method":"ngram","num_speculative_tokens":5,"prompt_lookup_max":4}'
    argv = [f"{LAB}/vllm/bin/vllm", "serve", f"{LAB}/tiny", "--served-model-name", "tiny", "--port", str(port), "--max-model-len", "2048"]
    argv += ["--dtype", "bfloat16", "--enforce-eager", "--generation-config", "vllm", "--speculative-config", speculative]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(argv, env=os.environ | ENVIRONMENT, stdout=log, stderr=log) as engine:
        address = f"http://127.0.0.1:{port}"
        answers = False
        for _ in range(300):
            assert engine.poll() is None, (tmp_path / "log").read_text()[-2000:]
            try:
                answers = httpx.get(f"{address}/health", timeout=5, trust_env=False).status_code == 200
            except httpx.TransportError:
                threading.Event().wait(0.5)
            if answers:
                break
        assert answers
        yield address
        engine.terminate()
        engine.wait(60)


def test_recorded_counters_equal_the_engines_own(serving: str, service: tuple[str, int], tmp_path: Path) -> None:
    server, _ = service
    file = tmp_path / "endpoint.yaml"
    file.write_text(
        f"name: endpoint\nengine: {{kind: endpoint, base_url: '{serving}/v1'}}\n"
        "bench: {max_tokens: 48, concurrency: [1, 4], repeat: 2, warmup: 0}\n"
    )
    before = own_reading(serving)
    assert expctl("submit", str(file), "--follow", server=server).returncode == 0
    delta = {name: value - before[name] for name, value in own_reading(serving).items()}
    with Client(server) as client:
        one = client.experiments(limit=1)[0]["id"]
    phases = results(server, one)["phases"]
    recorded = {
        "spec_decode_num_drafts": sum(phase["speculation"]["drafts"] for phase in phases),
        "spec_decode_num_draft_tokens": sum(phase["speculation"]["draft_tokens"] for phase in phases),
        "spec_decode_num_accepted_tokens": sum(phase["speculation"]["accepted_tokens"] for phase in phases),
        # One token more for each of the two probes, before loading ends and before measuring begins.
        "generation_tokens": sum(phase["summary"]["output_tokens"] for phase in phases) + 2,
    }
    assert recorded == {name: delta[name] for name in recorded}
    assert delta["spec_decode_num_drafts"] > 0


def test_ids_are_as_many_as_usage_says_and_figures_are_the_counters(serving: str, tmp_path: Path) -> None:
    """The toolbox verb, which keeps everything that a server tells."""
    file = tmp_path / "report.json"
    before = own_reading(serving)
    argv = ["bench", "--base-url", f"{serving}/v1", "--model", "tiny", "--max-tokens", "48", "--concurrency", "1", "4"]
    made = expctl(*argv, "--repeat", "2", "--warmup", "0", "--output", str(file), server="http://127.0.0.1:9")
    assert made.returncode == 0, made.stderr
    delta = {name: value - before[name] for name, value in own_reading(serving).items()}
    phases = json.loads(file.read_text())["phases"]
    requests = [request for phase in phases for request in phase["requests"]]
    assert len(requests) == 20
    for request in requests:
        assert len(request["output_token_ids"]) == request["completion_tokens"]
        assert len(request["prompt_token_ids"]) == request["prompt_tokens"]
        assert request["warnings"] == []
    drafts, drafted, accepted = (
        sum(phase["speculation"][name] for phase in phases) for name in ("drafts", "draft_tokens", "accepted_tokens")
    )
    assert (drafts, drafted, accepted) == tuple(delta[f"spec_decode_num_{name}"] for name in ("drafts", "draft_tokens", "accepted_tokens"))
    assert sum(request["completion_tokens"] for request in requests) == delta["generation_tokens"]
    assert sum(request["prompt_tokens"] for request in requests) == delta["prompt_tokens"]
    for phase in phases:
        shown = phase["speculation"]
        assert shown["mean_acceptance_length"] == pytest.approx(1 + shown["accepted_tokens"] / shown["drafts"])
        assert shown["draft_acceptance_rate"] == pytest.approx(shown["accepted_tokens"] / shown["draft_tokens"])
        assert sum(shown["per_position_acceptance"]) == pytest.approx(shown["accepted_tokens"] / shown["drafts"])
