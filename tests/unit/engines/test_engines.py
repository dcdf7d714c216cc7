"""Command lines, readiness, endpoints, and that every kind has an engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from service.domain.errors import UsageError
from service.domain.reasons import Reason
from service.domain.specfile import ENGINE_KINDS
from workers.engines.base import Engine, HostDefaults, Readiness
from workers.engines.readiness import probe
from workers.engines.vllm import VllmEngine
from workers.engines.vllm_arguments import argument

MakeEngine = Callable[..., Engine]

KEY = {"VLLM_API_KEY": "hush"}
CHAT = "/v1/chat/completions"


def vllm(engine_of: MakeEngine, environ: dict[str, str] | None = None, defaults: HostDefaults | None = None, **more: object) -> VllmEngine:
    made = engine_of(environ, defaults, kind="vllm", model="/models/kimi", **more)
    assert isinstance(made, VllmEngine)
    return made


def test_the_whole_command_line(engine_of: MakeEngine) -> None:
    launch = vllm(
        engine_of,
        served_model_name="kimi",
        port=8123,
        cwd="/opt",
        executable="/opt/vllm/bin/vllm",
        args={"tensor-parallel-size": 8, "enable-prefix-caching": False, "enforce-eager": True, "dtype": None, "host": "127.0.0.1"},
        speculative={"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "quantization": None},
    ).launch()
    assert launch.argv == (
        "/opt/vllm/bin/vllm", "serve", "/models/kimi", "--served-model-name", "kimi", "--port", "8123",
        "--tensor-parallel-size", "8", "--no-enable-prefix-caching", "--enforce-eager", "--host", "127.0.0.1",
        "--speculative-config", '{"method":"ngram","num_speculative_tokens":5,"prompt_lookup_max":4,"quantization":null}',
    )  # fmt: skip
    assert (launch.port, launch.cwd, launch.env) == (8123, "/opt", {"PYTHONUNBUFFERED": "1"})


def test_the_hosts_defaults(engine_of: MakeEngine) -> None:
    launch = vllm(engine_of, defaults=HostDefaults(8007, {"vllm": "/usr/bin/vllm"})).launch()
    assert launch.argv == ("/usr/bin/vllm", "serve", "/models/kimi", "--port", "8007")
    assert vllm(engine_of).launch().argv[0] == "vllm"


def test_a_draft_without_a_method_says_nothing_of_one(engine_of: MakeEngine) -> None:
    argv = vllm(engine_of, speculative={"model": "/models/eagle3", "num_speculative_tokens": 3}).launch().argv
    assert json.loads(argv[-1]) == {"model": "/models/eagle3", "num_speculative_tokens": 3}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("x", True, ["-x"]),
        ("flag", True, ["--flag"]),
        ("flag", False, ["--no-flag"]),
        ("flag", None, []),
        ("n", 3, ["-n", "3"]),
        ("num", 0.9, ["--num", "0.9"]),
        ("num", 1e-05, ["--num", "1e-05"]),
        ("num", -1, ["--num=-1"]),
        ("text", "-x", ["--text=-x"]),
        ("text", "a b", ["--text", "a b"]),
        ("map", {"a": [1, None], "ü": "x y"}, ["--map", '{"a":[1,null],"ü":"x y"}']),
        ("list", [1, 2], ["--list", "[1,2]"]),
        ("empty", "", ["--empty", ""]),
    ],
)
def test_arguments(name: str, value: Any, words: list[str]) -> None:
    assert argument(name, value) == words


def test_the_api_key_is_in_the_environment_and_nowhere_else(engine_of: MakeEngine) -> None:
    engine = vllm(engine_of, KEY, api_key="env:VLLM_API_KEY")
    launch = engine.launch()
    assert launch.env["VLLM_API_KEY"] == "hush"
    assert "hush" not in " ".join(launch.argv)
    assert "hush" not in repr(launch)
    assert engine.headers() == {"Authorization": "Bearer hush"}
    assert vllm(engine_of).headers() == {}


@pytest.mark.parametrize("environ", [{}, {"VLLM_API_KEY": ""}])
def test_a_key_that_is_not_set(engine_of: MakeEngine, environ: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        vllm(engine_of, environ, api_key="env:VLLM_API_KEY").launch()
    assert len(caught.value.lines()) == 3
    assert "VLLM_API_KEY" in caught.value.why


def test_gpus_by_the_numbers_that_the_tool_shows(engine_of: MakeEngine) -> None:
    env = vllm(engine_of, gpus=[2, 0], env={"NCCL_ALGO": "Ring"}).launch().env
    assert env == {"PYTHONUNBUFFERED": "1", "NCCL_ALGO": "Ring", "CUDA_VISIBLE_DEVICES": "2,0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert "CUDA_VISIBLE_DEVICES" not in vllm(engine_of).launch().env
    with pytest.raises(UsageError):
        vllm(engine_of, gpus=[0], env={"CUDA_VISIBLE_DEVICES": "1"}).launch()


def test_addresses(engine_of: MakeEngine) -> None:
    engine = vllm(engine_of)
    assert engine.api_base("http://127.0.0.1:8001/") == "http://127.0.0.1:8001/v1"
    assert engine.served_model(Readiness(ready=True)) == "/models/kimi"


def test_ready(engine_of: MakeEngine, server: Any) -> None:
    server.serves("kimi", "other")
    engine = vllm(engine_of, KEY, served_model_name="kimi", api_key="env:VLLM_API_KEY")
    found = engine.probe(server.url)
    assert found == Readiness(ready=True, detail="kimi answered", engine_version="0.32.0", models=("kimi", "other"), token="Yes")  # noqa: S106 - a word
    assert server.body(CHAT)["max_tokens"] == 1
    assert server.body(CHAT)["model"] == "kimi"
    assert all(headers["Authorization"] == "Bearer hush" for _, _, headers, _ in server.asked)


@pytest.mark.parametrize(
    ("answer", "token"),
    [
        ({"choices": [{"message": {"content": None, "reasoning": "Hm"}}]}, "Hm"),
        ({"choices": [{"message": {"content": "", "reasoning_content": "Hm"}}]}, "Hm"),
        ({"choices": [{"message": {"content": None}}], "usage": {"completion_tokens": 1}}, ""),
        ({"choices": [{"message": {"content": None, "tool_calls": [{}]}}]}, ""),
    ],
)
def test_a_token_of_whatever_kind_counts(server: Any, answer: Any, token: str) -> None:
    server.serves("m")
    server.answers[CHAT] = (200, answer)
    del server.answers["/version"]
    found = probe(f"{server.url}/v1", "m", {})
    assert (found.ready, found.token, found.engine_version) == (True, token, None)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((200, {"choices": [{"message": {"content": ""}}], "usage": {"completion_tokens": 0}}), None),
        ((200, {"choices": []}), None),
        ((200, "not json"), None),
        ((200, []), None),
        ((503, "loading"), None),
        ((500, {"error": "EngineDeadError"}), None),
        ((429, ""), None),
        ((400, {"error": "no"}), Reason.REQUEST_REFUSED),
        ((401, ""), Reason.AUTH_FAILED),
    ],
)
def test_no_token_is_not_ready(server: Any, answer: Any, reason: Reason | None) -> None:
    server.serves("m")
    server.answers[CHAT] = answer
    found = probe(f"{server.url}/v1", "m", {})
    assert (found.ready, found.reason, found.models) == (False, reason, ("m",))
    assert found.detail


def test_a_base_model_without_a_chat_template(server: Any) -> None:
    server.serves("m")
    server.answers[CHAT] = (400, {"error": "no chat template"})
    server.answers["/v1/completions"] = (200, {"choices": [{"text": "Yes"}]})
    assert probe(f"{server.url}/v1", "m", {}).token == "Yes"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((404, ""), None),
        ((503, {"error": {"message": "Loading model"}}), None),
        ((200, {"data": [{"id": "production"}]}), Reason.WRONG_SERVER_ON_PORT),
        ((200, {"data": []}), Reason.WRONG_SERVER_ON_PORT),
        ((200, "<html>"), Reason.WRONG_SERVER_ON_PORT),
        ((200, {"data": None}), Reason.WRONG_SERVER_ON_PORT),
        ((401, "Unauthorized"), Reason.AUTH_FAILED),
    ],
)
def test_lists_of_models_that_are_not_ours(server: Any, answer: Any, reason: Reason | None) -> None:
    server.answers["/v1/models"] = answer
    found = probe(f"{server.url}/v1", "m", {})
    assert (found.ready, found.reason) == (False, reason)
    assert CHAT not in [path for _, path, _, _ in server.asked]


def test_a_server_that_is_not_up(engine_of: MakeEngine, dead_url: str) -> None:
    found = vllm(engine_of).probe(dead_url)
    assert (found.ready, found.reason) == (False, None)
    assert found.detail
    assert not vllm(engine_of).probe("http://[broken").ready
    assert vllm(engine_of).counters(dead_url)() is None


def test_a_proxy_in_the_environment_is_not_asked(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    server.serves("m")
    assert probe(f"{server.url}/v1", "m", {}).ready


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_an_endpoint(engine_of: MakeEngine, server: Any, suffix: str) -> None:
    server.serves("only")
    server.answers["/metrics"] = (200, 'vllm:generation_tokens_total{engine="0"} 5\n')
    engine = engine_of(kind="endpoint", base_url=server.url + suffix)
    assert not engine.owns_process
    assert engine.launch() is None
    assert engine.api_base("http://elsewhere") == f"{server.url}/v1"
    found = engine.probe("http://elsewhere")
    assert found.ready
    assert engine.served_model(found) == "only"
    counters = engine.counters("http://elsewhere")()
    assert counters is not None
    assert counters.generation_tokens == 5
    assert engine.load_log().feed(["x"]) == engine.load_log().progress


def test_an_endpoint_with_several_models_must_be_told_which(engine_of: MakeEngine, server: Any) -> None:
    server.serves("a", "b")
    found = engine_of(kind="endpoint", base_url=server.url).probe("")
    assert (found.ready, found.reason) == (False, Reason.BAD_ARGUMENTS)
    named = engine_of(kind="endpoint", base_url=server.url, served_model_name="b")
    assert named.served_model(named.probe("")) == "b"


def test_the_key_of_an_endpoint_stays_with_it(engine_of: MakeEngine, server: Any) -> None:
    server.answers["/metrics"] = (200, 'vllm:generation_tokens_total{engine="0"} 5\n')
    common = {"kind": "endpoint", "api_key": "env:VLLM_API_KEY"}
    assert engine_of(KEY, base_url="http://127.0.0.1:9", metrics_url=f"{server.url}/metrics", **common).counters("")() is not None
    assert "Authorization" not in server.asked[0][2]
    engine_of(KEY, base_url=server.url, **common).counters("")()
    assert server.asked[1][2]["Authorization"] == "Bearer hush"
    assert engine_of(KEY, base_url=server.url, metrics_url="off", **common).counters("")() is None
    assert len(server.asked) == 2


EXAMPLES = {
    "vllm": {"kind": "vllm", "model": "m"},
    "endpoint": {"kind": "endpoint", "base_url": "http://127.0.0.1:8000"},
    "command": {"kind": "command", "run": ["true"]},
    "llamacpp": {"kind": "llamacpp", "model": "/m.gguf"},
    "sglang": {"kind": "sglang", "model": "/m"},
}


def test_every_kind_has_an_engine(engine_of: MakeEngine) -> None:
    assert set(ENGINE_KINDS) == set(EXAMPLES)
    for kind in ENGINE_KINDS:
        assert engine_of(**EXAMPLES[kind]).kind == kind
