"""llama.cpp as an engine to run: its command line, its readiness, its counters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from service.domain.errors import SpecError, UsageError
from service.domain.llamacpp_spec import LlamacppSpeculative
from service.domain.reasons import Reason
from service.domain.runcode import code_in
from service.domain.spec import Spec
from service.domain.specfile import parse
from workers.engines.any_log import AnyLog
from workers.engines.base import Engine, HostDefaults, Launch
from workers.engines.llamacpp_arguments import speculation, words
from workers.engines.llamacpp_log import LlamacppLoadLog
from workers.engines.log_line import messages

MakeEngine = Callable[..., Engine]
LOADING = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}


def launch(engine_of: MakeEngine, environ: dict[str, str] | None = None, defaults: HostDefaults | None = None, **more: object) -> Launch:
    made = engine_of(environ, defaults, kind="llamacpp", model="/models/kimi.gguf", **more).launch()
    assert made is not None
    return made


def test_the_whole_command_line(engine_of: MakeEngine) -> None:
    made = launch(
        engine_of,
        served_model_name="kimi",
        port=8123,
        cwd="/opt",
        user="llama",
        executable="/opt/llama/bin/llama-server",
        args={"ctx-size": 4096, "no-webui": True, "warmup": False, "tensor-split": [3, 1], "seed": -1, "flash-attn": None},
        speculative={"method": "ngram-simple", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "ngram-simple-min-hits": 2},
    )
    assert made.argv == (
        "/opt/llama/bin/llama-server", "--model", "/models/kimi.gguf", "--alias", "kimi", "--port", "8123",
        "--host", "0.0.0.0", "--metrics", "--ctx-size", "4096", "--no-webui", "--no-warmup", "--tensor-split", "3,1", "--seed", "-1",
        "--spec-type", "ngram-simple", "--spec-ngram-simple-size-m", "5", "--spec-ngram-simple-size-n", "4",
        "--spec-ngram-simple-min-hits", "2",
    )  # fmt: skip
    assert (made.port, made.cwd, made.user, made.env) == (8123, "/opt", "llama", {})


def test_what_the_host_and_the_experiment_may_decide(engine_of: MakeEngine) -> None:
    assert launch(engine_of).argv[:7] == (
        "llama-server", "--model", "/models/kimi.gguf", "--alias", "/models/kimi.gguf", "--port", "8001",
    )  # fmt: skip
    assert launch(engine_of, defaults=HostDefaults(8007, {"llamacpp": "/usr/bin/ls"})).argv[0] == "/usr/bin/ls"
    own = launch(engine_of, args={"host": "127.0.0.1", "metrics": False}).argv
    assert own[-2:] == ("--host", "127.0.0.1")
    assert "--metrics" not in own


@pytest.mark.parametrize(
    ("asked", "argv"),
    [
        ({"method": "ngram", "num_speculative_tokens": 7}, "--spec-type ngram-map-k --spec-ngram-map-k-size-m 7"),
        (
            {"method": "ngram-mod", "num_speculative_tokens": 32, "prompt_lookup_max": 24},
            "--spec-type ngram-mod --spec-ngram-mod-n-max 32 --spec-ngram-mod-n-match 24",
        ),
        ({"method": "ngram-map-k4v", "prompt_lookup_max": 8}, "--spec-type ngram-map-k4v --spec-ngram-map-k4v-size-n 8"),
        (
            {"method": "draft_model", "model": "/m/small.gguf", "num_speculative_tokens": 4, "draft-p-min": 0.5},
            "--spec-type draft-simple --spec-draft-model /m/small.gguf --spec-draft-n-max 4 --spec-draft-p-min 0.5",
        ),
        (
            {"method": "draft-mtp,ngram-simple", "num_speculative_tokens": 3},
            "--spec-type draft-mtp,ngram-simple --spec-draft-n-max 3 --spec-ngram-simple-size-m 3",
        ),
        (
            {"method": "ngram-simple", "num_speculative_tokens": 3, "ngram_simple_size_m": 9},
            "--spec-type ngram-simple --spec-ngram-simple-size-m 9",
        ),
        ({"method": "ngram-cache", "num_speculative_tokens": 3}, "--spec-type ngram-cache"),
    ],
)
def test_speculation(asked: dict[str, Any], argv: str) -> None:
    assert " ".join(speculation(LlamacppSpeculative.model_validate(asked))) == argv


def test_a_mapping_is_json() -> None:
    assert words("chat-template-kwargs", {"enable_thinking": False}) == ["--chat-template-kwargs", '{"enable_thinking":false}']


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("kind: llamacpp", "model is missing"),
        ("kind: llamacpp, model: m, args: {alias: x}", "engine.served_model_name"),
        ("kind: llamacpp, model: m, args: {spec_type: x}", "engine.speculative"),
        ("kind: llamacpp, model: m, args: {--ctx-size: 1}", "without the leading dashes"),
        ("kind: llamacpp, model: 'a,b.gguf'", "served_model_name without one"),
        ("kind: llamacpp, model: m, served_model_name: 'a,b'", "served_model_name without one"),
        ("kind: llamacpp, model: m, gpus: [0, 0]", "name each GPU once"),
        ("kind: llamacpp, model: m, api_key: abc", "write a reference"),
        ("kind: llamacpp, model: m, speculative: {num_speculative_tokens: 3}", "method"),
        ("kind: llamacpp, model: m, speculative: {method: draft-mtp, prompt_lookup_max: 3}", "looks nothing up"),
        ("kind: llamacpp, model: m, speculative: {method: '-x'}", "method"),
        ("kind: llamacpp, model: m, from_unit: x.service", "unknown key from_unit"),
    ],
)
def test_a_file_that_is_not_right(engine: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(f"name: x\nengine: {{{engine}}}\n")
    assert said in " ".join(caught.value.lines())


def test_a_path_with_a_comma_is_fine_under_another_name() -> None:
    [spec] = parse("name: x\nengine: {kind: llamacpp, model: 'a,b.gguf', served_model_name: ab}\n")
    assert spec.engine.model_id == "ab"


def test_the_key_is_in_the_environment_and_gpus_by_their_numbers(engine_of: MakeEngine) -> None:
    made = launch(engine_of, {"KEY": "hush-hush"}, api_key="env:KEY", gpus=[1, 0])
    assert made.env == {"LLAMA_API_KEY": "hush-hush", "CUDA_VISIBLE_DEVICES": "1,0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert "hush-hush" not in " ".join(made.argv)
    with pytest.raises(UsageError, match="said twice"):
        launch(engine_of, gpus=[0], env={"CUDA_VISIBLE_DEVICES": "1"})


def test_loading_is_not_ready_and_no_failure(engine_of: MakeEngine, server: Any) -> None:
    engine = engine_of(kind="llamacpp", model="/m.gguf", served_model_name="m")
    server.answers["/v1/models"] = (503, LOADING)
    waiting = engine.probe(server.url)
    assert (waiting.ready, waiting.reason) == (False, None)
    assert "Loading model" in waiting.detail
    server.serves("m")
    del server.answers["/version"]
    found = engine.probe(server.url)
    assert (found.ready, found.token, found.engine_version) == (True, "Yes", None)
    server.answers["/props"] = (200, {"build_info": "b11434-1a2b3c4"})
    assert engine.probe(server.url).engine_version == "b11434-1a2b3c4"
    assert engine.served_model(found) == "m"
    server.answers["/metrics"] = (200, "llamacpp:tokens_predicted_total 5\nllamacpp:spec_decode_num_drafts_total 0\n")
    counters = engine.counters(f"{server.url}/")()
    assert counters is not None
    assert (counters.engine, counters.generation_tokens, counters.drafts) == ("llamacpp", 5, 0)
    assert isinstance(engine.load_log(), LlamacppLoadLog)


def test_who_may_queue_it() -> None:
    def code(**engine: object) -> list[str]:
        return code_in(Spec.model_validate({"name": "x", "engine": {"kind": "llamacpp", "model": "/m.gguf"} | engine}))

    plain = {"args": {"ctx-size": 4096, "flash-attn": "on"}, "gpus": [0], "port": 1, "served_model_name": "m", "api_key": "env:K"}
    assert code(**plain, speculative={"method": "ngram-mod", "num_speculative_tokens": 16, "ngram-mod-n-min": 4}) == []
    assert code(model="--config") == ["engine.model"]
    assert code(args={"slot-save-path": "/etc"}) == ["engine.args.slot-save-path"]
    assert code(speculative={"method": "draft-simple", "draft-hf": "a/b"}) == ["engine.speculative.draft-hf"]


LOG = """\
0.00.001.129 I srv  llama_server: initializing ...
0.00.002.492 I cmn  common_param: common_params_print_info: verbosity = 3 (adjust with the `-lv N` CLI arg)
0.00.002.645 W srv  llama_server: security: no API key is set and CORS allows all origins
0.00.011.767 I srv    load_model: loading model '/models/kimi.gguf'
0.00.473.364 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 1024, kv_unified = 'false'
0.00.489.018 I srv  llama_server: model loaded
0.00.489.034 I srv  llama_server: listening on http://0.0.0.0:8123
""".splitlines()


def test_the_log_of_a_build_that_stamps_its_lines() -> None:
    log = LlamacppLoadLog()
    phases = [log.feed([line]).phase for line in LOG]
    assert phases == ["engine_init"] * 3 + ["weights_loading", "kv_cache_init", "api_startup", "api_startup"]
    assert log.progress.started_serving
    assert log.progress.facts["port"] == 8123
    assert log.progress.reason is None
    reader = AnyLog()
    for line in LOG[3:5]:
        for message in messages(line):
            reader.take(message)
    assert reader.engine == "llama.cpp"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("0.00.001.129 E error: invalid argument: --ctx-sise", Reason.BAD_ARGUMENTS),
        ("0.00.021.440 E gguf_init_from_file: failed to open GGUF file '/m.gguf' (No such file or directory)", Reason.MODEL_NOT_FOUND),
    ],
)
def test_a_cause_behind_a_stamp(line: str, reason: Reason) -> None:
    assert LlamacppLoadLog().feed([line]).reason == reason
