"""The story against a real llama.cpp: an experiment without speculation, one with, and every figure the server's own.

The model is tiny and random, so the figures mean nothing; what is proven is that none of them is ours.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from expctl.client import Client
from service.domain.request_speculation import DIFFERS
from service.domain.spec import Spec
from tests.lab.local_service import LAB, expctl, free_port, results, run_all
from tests.lab.local_service import serving as up
from workers.engines.base import HostDefaults
from workers.engines.registry import make_engine

pytestmark = pytest.mark.lab

BASE = f"""\
name: tiny base
host: local
engine:
  kind: llamacpp
  executable: {LAB}/llama-server
  model: {LAB}/tiny.gguf
  served_model_name: tiny
  args: {{host: 127.0.0.1, ctx-size: 8192, parallel: 4, threads: 1, poll: 0}}
load: {{timeout: 5m, stall: 2m}}
bench: {{prompts: five, max_tokens: 64, concurrency: [1, 4], repeat: 2, warmup: 1}}
"""
NGRAM = BASE.replace("name: tiny base", "name: tiny ngram").replace(
    "load:", "  speculative: {method: ngram, num_speculative_tokens: 5, prompt_lookup_max: 4}\nload:"
)
SPECULATION = ("spec_decode_num_drafts", "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens")
COUNTERS = (*SPECULATION, "tokens_predicted", "prompt_tokens", "prompt_tokens_cached")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    assert (LAB / "llama-server").exists(), f"the lab's llama.cpp is missing: run tests/lab/make_llamacpp.py {LAB}"
    with up(tmp_path_factory.mktemp("data")) as (server, _):
        yield server


@pytest.fixture(scope="module")
def night(service: str, tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    """Both experiments, submitted together and left alone."""
    return run_all(service, tmp_path_factory.mktemp("files"), {"base.yaml": BASE, "ngram.yaml": NGRAM}, "5m")


def phases(server: str, one: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = results(server, one)["phases"]
    return found


def test_both_succeed_by_the_same_steps_as_any_engine(service: str, night: list[int]) -> None:
    for one in night:
        with Client(service) as client:
            item = client.experiment(one)
        assert (item["outcome"], item["facts"]["engine"], item["facts"]["served_model"]) == ("succeeded", "llamacpp", "tiny")
        assert [step["name"] for step in item["steps"]] == ["clear", "launch", "load", "warm", "measure", "collect"]
        log = expctl("logs", str(one), server=service).stdout
        assert log.index("loading model") < log.index("model loaded") < log.index("print_timing")


def test_token_counts_are_the_servers_own(service: str, night: list[int]) -> None:
    for phase in (phase for one in night for phase in phases(service, one)):
        assert phase["summary"]["valid"], phase["summary"]
        assert len(phase["requests"]) == 10
        for request in phase["requests"]:
            assert (request["tokens_from"], request["finish_reason"] in {"length", "stop"}) == ("usage", True)
            # Its chat route gives no ids; should it begin to, they must be as many as it says.
            assert len(request.get("output_token_ids") or [0] * request["completion_tokens"]) == request["completion_tokens"]
        assert phase["summary"]["output_tokens"] == sum(request["completion_tokens"] for request in phase["requests"])
        # Every prompt was processed anew, though each came twice.
        assert phase["summary"]["conditions"]["prefix_cache_hit_rate"] == 0
        assert phase["summary"]["conditions"]["warnings"] == []


def test_off_is_off_and_not_nothing(service: str, night: list[int]) -> None:
    for phase in phases(service, night[0]):
        for found in (phase["speculation"], *(request["speculation"] for request in phase["requests"] if request["speculation"])):
            assert (found["status"], found["warnings"]) == ("off", [])
            assert (found["mean_acceptance_length"], found["draft_acceptance_rate"]) == (None, None)


def test_on_adds_up_and_agrees_with_what_came_with_each_answer(service: str, night: list[int]) -> None:
    for phase in phases(service, night[1]):
        found = phase["speculation"]
        assert (found["status"], found["source"], found["comparable"]) == ("on", "prometheus", True)
        assert 1 < found["mean_acceptance_length"] <= 6
        assert found["mean_acceptance_length"] == pytest.approx(1 + found["accepted_tokens"] / found["drafts"])
        assert DIFFERS not in found["warnings"]
        single = [request["speculation"] for request in phase["requests"]]
        # Its timings, which came with the answers, were set beside the counters; a difference would be told.
        assert not any(DIFFERS in one["warnings"] for one in single if one)
        if phase["concurrency"] == 1:
            for key in ("drafts", "draft_tokens", "accepted_tokens"):
                assert sum(one[key] or 0 for one in single) == found[key]


def test_the_comparison_has_a_verdict(service: str, night: list[int]) -> None:
    answer = expctl("compare", *map(str, night), "--json", server=service)
    assert answer.returncode == 0, answer.stderr
    comparison = json.loads(answer.stdout)
    assert comparison["comparable"], comparison["why_not"]
    assert comparison["verdict"] in {"better", "worse", "no_difference_shown"}


@pytest.fixture
def started(tmp_path: Path) -> Iterator[str]:
    """A llama.cpp with speculation that the test starts by itself, at the very moment."""
    port = free_port()
    argv = [f"{LAB}/llama-server", "--model", f"{LAB}/tiny.gguf", "--alias", "tiny", "--port", str(port), "--metrics", "--threads", "1"]
    argv += ["--poll", "0", "--parallel", "4", "--ctx-size", "8192"]
    argv += ["--spec-type", "ngram-map-k", "--spec-ngram-map-k-size-n", "4", "--spec-ngram-map-k-size-m", "5"]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(argv, stdout=log, stderr=log) as engine:
        yield f"http://127.0.0.1:{port}"
        engine.terminate()
        assert engine.wait(30) == 0


def ready(address: str) -> list[str]:
    """Look at it until it serves, by our own engine; what was in the way each time."""
    engine = make_engine(
        Spec.model_validate({"name": "x", "engine": {"kind": "llamacpp", "model": "m", "served_model_name": "tiny"}}),
        HostDefaults(1, {}),
        {},
    )
    seen = []
    for _ in range(3000):
        found = engine.probe(address)
        assert found.reason is None, found
        if found.ready:
            assert found.engine_version
            return seen
        seen.append(found.detail)
    raise AssertionError(seen[-3:])


def own_reading(address: str) -> dict[str, float]:
    """The server's counters, read without any of our code for it."""
    page = httpx.get(f"{address}/metrics", timeout=10, trust_env=False).text
    return {name: float(re.findall(rf"^llamacpp:{name}_total (\S+)$", page, re.MULTILINE)[0]) for name in COUNTERS}


def test_it_answers_503_while_it_loads_and_its_counters_are_ours(started: str, service: str, tmp_path: Path) -> None:
    assert any("503" in detail and "Loading model" in detail for detail in ready(started))
    file = tmp_path / "endpoint.yaml"
    file.write_text(
        f"name: endpoint\nengine: {{kind: endpoint, base_url: '{started}/v1'}}\n"
        "bench: {max_tokens: 48, concurrency: [1, 4], repeat: 2, warmup: 0}\n"
    )
    before = own_reading(started)
    assert expctl("submit", str(file), "--follow", server=service).returncode == 0
    delta = {name: value - before[name] for name, value in own_reading(started).items()}
    with Client(service) as client:
        measured = phases(service, client.experiments(limit=1)[0]["id"])
    recorded = {name: sum(phase["speculation"][name.removeprefix("spec_decode_num_")] for phase in measured) for name in SPECULATION}
    assert recorded == {name: delta[name] for name in recorded}
    assert recorded["spec_decode_num_drafts"] > 0
    # One token more for each of the two probes, before loading ends and before measuring begins.
    assert sum(phase["summary"]["output_tokens"] for phase in measured) + 2 == delta["tokens_predicted"]
