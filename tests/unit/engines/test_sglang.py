"""SGLang as an engine to run: its command line, its readiness, its counters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from service.domain.errors import SpecError, UsageError
from service.domain.runcode import code_in
from service.domain.spec import Spec
from service.domain.specfile import parse
from tests.unit.engines.conftest import Server
from workers.engines.base import Engine, HostDefaults, Launch
from workers.engines.sglang_log import SglangLoadLog

MakeEngine = Callable[..., Engine]


def launch(engine_of: MakeEngine, environ: dict[str, str] | None = None, defaults: HostDefaults | None = None, **more: object) -> Launch:
    made = engine_of(environ, defaults, kind="sglang", model="/models/kimi", **more).launch()
    assert made is not None
    return made


def test_the_whole_command_line(engine_of: MakeEngine) -> None:
    made = launch(
        engine_of,
        {"KEY": "s3cret", "HUB": "hf_x"},
        served_model_name="kimi",
        port=8123,
        cwd="/opt",
        user="sglang",
        executable="/opt/sglang/bin/python3.12",
        gpus=[0, 1],
        api_key="env:KEY",
        args={"tp-size": 2, "enable-torch-compile": True, "disable-radix-cache": False, "lora-paths": ["a", "b"], "page-size": None,
              "json-model-override-args": {"a": 1}, "random-seed": -1},
        speculative={"method": "EAGLE3", "num_speculative_tokens": 3, "model": "/models/head", "eagle-topk": 4},
        env={"HF_TOKEN": "env:HUB"},
    )  # fmt: skip
    assert made.argv == (
        "/opt/sglang/bin/python3.12", "-m", "sglang.launch_server", "--model-path", "/models/kimi", "--served-model-name", "kimi",
        "--port", "8123", "--host", "0.0.0.0", "--enable-metrics", "--tp-size", "2", "--enable-torch-compile", "--lora-paths", "a", "b",
        "--json-model-override-args", '{"a":1}', "--random-seed=-1",
        "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "/models/head", "--speculative-num-draft-tokens", "4",
        "--speculative-num-steps", "3", "--speculative-eagle-topk", "4", "--api-key=s3cret",
    )  # fmt: skip
    assert (made.port, made.cwd, made.user) == (8123, "/opt", "sglang")
    assert made.env == {
        "PYTHONUNBUFFERED": "1", "HF_TOKEN": "hf_x", "CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"method": "ngram", "num_speculative_tokens": 5}, ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "6"]),
        ({"method": "mtp"}, ["--speculative-algorithm", "NEXTN"]),
        ({"method": "NGRAM", "num-draft-tokens": 9}, ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "9"]),
        ({"method": "eagle", "speculative-num-steps": 2}, ["--speculative-algorithm", "EAGLE", "--speculative-num-steps", "2"]),
    ],
)
def test_speculation(engine_of: MakeEngine, asked: dict[str, Any], words: list[str]) -> None:
    assert list(launch(engine_of, speculative=asked).argv[-len(words) :]) == words


def test_what_the_host_and_the_experiment_may_decide(engine_of: MakeEngine) -> None:
    assert launch(engine_of).argv[:4] == ("python3", "-m", "sglang.launch_server", "--model-path")
    assert launch(engine_of, defaults=HostDefaults(8007, {"sglang": "/usr/bin/sgl"})).argv[:2] == ("/usr/bin/sgl", "--model-path")
    own = launch(engine_of, args={"host": "127.0.0.1", "enable-metrics": False}).argv
    assert own[-2:] == ("--host", "127.0.0.1")
    assert "--enable-metrics" not in own


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("args: {port: 5}", "engine.port"),
        ("args: {speculative_algorithm: EAGLE}", "engine.speculative"),
        ("api_key: secret", "write a reference"),
        ("speculative: {num_speculative_tokens: 5}", "method"),
        ("speculativ: {method: ngram}", "speculative"),
    ],
)
def test_what_a_file_may_not_say(keys: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(f"name: x\nengine:\n  kind: sglang\n  model: /m\n  {keys}\n")
    assert words in f"{caught.value.what} {caught.value.why} {caught.value.todo}"


def test_gpus_that_are_said_twice(engine_of: MakeEngine) -> None:
    with pytest.raises(UsageError, match="the GPUs are said twice"):
        launch(engine_of, gpus=[0], env={"CUDA_VISIBLE_DEVICES": "1"})


@pytest.mark.parametrize("route", ["/server_info", "/get_server_info"])
def test_it_is_ready_when_a_token_came_and_says_its_version(engine_of: MakeEngine, server: Server, route: str) -> None:
    server.serves("/models/kimi")
    server.answers["/version"] = (404, {})
    server.answers[route] = (200, {"version": "0.5.6"})
    found = engine_of(kind="sglang", model="/models/kimi").probe(server.url)
    assert (found.ready, found.engine_version) == (True, "0.5.6")
    server.answers[route] = (200, ["no", "mapping"])
    assert engine_of(kind="sglang", model="/models/kimi").probe(server.url).engine_version is None


def test_it_reads_its_own_log_and_counters(engine_of: MakeEngine, server: Server) -> None:
    engine = engine_of(kind="sglang", model="/models/kimi")
    assert isinstance(engine.load_log(), SglangLoadLog)
    server.answers["/metrics"] = (200, 'sglang:generation_tokens_total{model_name="m"} 5\nsglang:spec_accept_length{model_name="m"} 2.5\n')
    counters = engine.counters(server.url)()
    assert counters is not None
    assert (counters.engine, counters.generation_tokens, counters.gauges) == ("sglang", 5.0, {"0": {"accept_length": 2.5}})


def test_what_of_it_runs_code() -> None:
    engine = {"kind": "sglang", "model": "m", "args": {"tp-size": 2, "trust-remote-code": True, "mem-fraction-static": 0.9}}
    assert code_in(Spec.model_validate({"name": "x", "engine": engine})) == ["engine.args.trust-remote-code"]
    spying = {**engine, "args": {}, "env": {"NCCL_ALGO": "env:SOMEBODYS_KEY"}}
    assert code_in(Spec.model_validate({"name": "x", "engine": spying})) == ["engine.env.NCCL_ALGO"], "it would take a secret of the worker"


def test_a_reference_that_leads_nowhere(engine_of: MakeEngine) -> None:
    with pytest.raises(UsageError, match=r"engine\.env\.HF_TOKEN: env:HUB cannot be resolved"):
        launch(engine_of, env={"HF_TOKEN": "env:HUB"})
    with pytest.raises(UsageError, match="is refused"):
        launch(engine_of, {"EXPCTL_DATABASE_URL": "x"}, env={"HF_TOKEN": "env:EXPCTL_DATABASE_URL"})
