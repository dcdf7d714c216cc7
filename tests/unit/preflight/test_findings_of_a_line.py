"""Command lines, paths and sizes, held against what a look has found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from service.domain.reasons import Reason
from workers.engines.base import Launch
from workers.engines.vllm_help import parse_help
from workers.hosts.gpu_reading import GpuMemory, GpuReading
from workers.preflight.arguments import check_flags, check_speculation, line_of, speculation_of, split_server
from workers.preflight.findings import Finding, Report, masked, wrong
from workers.preflight.places import asked_of, check_disks, check_places
from workers.preflight.sizes import check_gpus, check_weights

HELP = parse_help((Path(__file__).parents[2] / "data" / "vllm-0.32" / "help.txt").read_text())
DISTS = ("vllm-0.32.0.dist-info",)
VLLM = "/opt/vllm/bin/vllm"
SERVER, CLI = "vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main"
NGRAM = {"method": "ngram", "num_speculative_tokens": 5}
FOLDER = {
    "kind": "folder", "readable": True, "executable": True, "bytes": 600 * 2**30, "weights": True, "missing": [], "empty": [],
    "configured": True, "config": {"dtype": "bfloat16"},
}  # fmt: skip
FILE = {"kind": "file", "readable": True, "executable": True, "path": VLLM, "mark": "1", "dists": list(DISTS)}
GIB = 1024


def verdicts(found: Any) -> list[tuple[str, str, Reason | None]]:
    return [(one.about, str(one.verdict), one.reason) for one in found]


def only(found: Any, verdict: str) -> Finding:
    [one] = [one for one in found if one.verdict == verdict]
    return one


@pytest.mark.parametrize(
    ("argv", "program", "rest"),
    [
        ((VLLM, "serve", "m", "--port", "1"), (VLLM, "serve"), ("m", "--port", "1")),
        (("/v/python", VLLM, "serve", "m"), ("/v/python", VLLM, "serve"), ("m",)),
        (("python", "-m", SERVER, "--model", "m"), ("python", "-m", SERVER), ("--model", "m")),
        (("python", "-m", CLI, "serve", "m"), ("python", "-m", CLI, "serve"), ("m",)),
    ],
)
def test_a_server_s_line_is_program_and_arguments(argv: tuple[str, ...], program: tuple[str, ...], rest: tuple[str, ...]) -> None:
    assert split_server(argv) == (program, rest)


def test_another_program_is_none_of_vllm_s() -> None:
    assert split_server(("/opt/llama/llama-server", "--model", "/m.gguf")) is None
    assert line_of(()).options == ()


def test_a_flag_that_this_version_does_not_have_is_wrong_and_the_nearest_is_named() -> None:
    one = only(check_flags(["m", "--max-model-length", "4096"], HELP, VLLM), "wrong")
    assert one.reason == Reason.BAD_ARGUMENTS
    assert "--max-model-len" in one.text
    assert VLLM in one.evidence
    assert one.remedy == "write --max-model-len instead of --max-model-length"
    assert verdicts(check_flags(["m", "--max-model-len", "4096"], HELP, VLLM)) == [("arguments", "good", None)]


@pytest.mark.parametrize(
    ("words", "config"),
    [
        (["--speculative-config", '{"method":"ngram","num_speculative_tokens":5}'], NGRAM),
        (["-sc", '{"method":"ngram"}', "--speculative-config.num_speculative_tokens", "5"], NGRAM),
        ([], {}),
        (["--speculative-config", '{"method":'], None),
        (["--speculative-config", "[1]"], None),
    ],
)
def test_the_speculative_config_of_a_line(words: list[str], config: dict[str, Any] | None) -> None:
    assert speculation_of(line_of((VLLM, "serve", "m", *words)))[0] == config


def test_a_rule_that_every_version_has_is_wrong_and_a_strange_name_only_where_the_version_is_known() -> None:
    bad = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 5, "prompt_lookup_max": 3}
    assert only(check_speculation(bad, 1, ()), "wrong").reason == Reason.BAD_ARGUMENTS
    strange = {"method": "ngrm", "num_speculative_tokens": 5}
    assert only(check_speculation(strange, 1, DISTS), "wrong").reason == Reason.BAD_ARGUMENTS
    for unknown in ((), ("vllm-0.99.0.dist-info",)):
        assert {str(one.verdict) for one in check_speculation(strange, 1, unknown)} == {"doubtful", "unchecked"}
    assert verdicts(check_speculation({"method": "ngram", "num_speculative_tokens": 5}, 1, DISTS)) == [("speculation", "good", None)]


def places(found: dict[str, Any], *words: str, hidden: str = "", cwd: str | None = None, **more: Any) -> list[Finding]:
    argv = (VLLM, "serve", "/m", *words)
    asked = asked_of(Launch(argv, more.pop("env", {}), cwd, 8001), line_of(argv), "/m")
    seen = {
        "programs": {VLLM: FILE} | more.get("programs", {}),
        "models": {"/m": FOLDER, "/draft": FOLDER} | found,
        "paths": more.get("paths", {}),
    }
    return list(check_places(asked, seen, hidden))


def test_what_is_there_is_good() -> None:
    assert {str(one.verdict) for one in places({})} == {"good"}


@pytest.mark.parametrize(
    ("found", "reason", "words"),
    [
        ({"kind": "missing"}, Reason.MODEL_NOT_FOUND, "is not there"),
        (FOLDER | {"configured": False}, Reason.MODEL_NOT_FOUND, "no config.json"),
        (FOLDER | {"weights": False}, Reason.MODEL_NOT_FOUND, "no weights"),
        (FOLDER | {"missing": ["model-00002-of-00002.safetensors"]}, Reason.CORRUPT_OR_INCOMPLETE_WEIGHTS, "model-00002-of-00002"),
        (FOLDER | {"empty": ["model.safetensors"]}, Reason.CORRUPT_OR_INCOMPLETE_WEIGHTS, "is empty"),
        ({"kind": "hidden", "why": "Permission denied"}, Reason.PERMISSION_DENIED, "Permission denied"),
    ],
)
def test_a_model_that_cannot_be_loaded(found: dict[str, Any], reason: Reason, words: str) -> None:
    one = only(places({"/m": found}), "wrong")
    assert (one.about, one.reason) == ("model", reason)
    assert words in one.text


def test_what_the_look_may_not_see_is_not_called_good_or_wrong() -> None:
    found = places({"/m": {"kind": "hidden", "why": "Permission denied"}}, hidden="and vllm may see it otherwise")
    assert "vllm may see it otherwise" in only(found, "unchecked").text


@pytest.mark.parametrize("words", [("--load-format", "dummy"), ("--load-format", "tensorizer")])
def test_other_loaders_look_for_other_files(words: tuple[str, ...]) -> None:
    assert {str(one.verdict) for one in places({"/m": FOLDER | {"weights": False, "missing": ["x"]}}, *words)} == {"good"}


def test_files_that_arguments_name() -> None:
    missing = {"/t.jinja": {"kind": "missing"}, "/c": {"kind": "missing"}}
    found = places({}, "--chat-template", "/t.jinja", cwd="/c", paths=missing)
    assert [(one.about, one.reason) for one in found if one.verdict == "wrong"] == [
        ("working directory", Reason.EXEC_FAILED),
        ("--chat-template", Reason.BAD_ARGUMENTS),
    ]


@pytest.mark.parametrize(
    ("program", "verdict"), [({"kind": "missing"}, "wrong"), ({"kind": "folder"}, "wrong"), (FILE | {"executable": False}, "wrong")]
)
def test_a_program_that_cannot_be_started(program: dict[str, Any], verdict: str) -> None:
    assert only(places({}, programs={VLLM: program}), verdict).reason == Reason.EXEC_FAILED


def test_a_simulation_loads_no_model() -> None:
    found = places({"/m": {"kind": "missing"}}, programs={VLLM: FILE | {"simulation": True}})
    assert only(found, "unchecked").about == "model"
    assert not any(one.verdict == "wrong" for one in found)


def test_a_drafter_is_looked_for_too_and_a_repository_is_not() -> None:
    config = '{"method":"eagle3","num_speculative_tokens":3,"model":"/draft"}'
    found = places({"/draft": {"kind": "missing"}}, "--speculative-config", config)
    assert only(found, "wrong").about == "draft model"
    argv = (VLLM, "serve", "org/m")
    asked = asked_of(Launch(argv, {}, None, 8001), line_of(argv), "org/m")
    assert (asked.model, [one.about for one in asked.notes]) == (None, ["model"])


def card(total: int, index: int = 0) -> GpuMemory:
    return GpuMemory(index, f"GPU-{index}", "card", 0, total)


def weights(words: tuple[str, ...], *totals: int, model: dict[str, Any] | None = None) -> list[Finding]:
    reading = GpuReading(known=True, tool="nvidia-smi", gpus=tuple(card(total, at) for at, total in enumerate(totals)))
    return list(check_weights(line_of((VLLM, "serve", "/m", *words)), FOLDER if model is None else model, reading, "all"))


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        (("-tp", "8"), "good"),  # 75 GiB on each of eight with 96
        (("-tp", "4"), "wrong"),  # 150 GiB on each
        (("-tp", "4", "--quantization", "fp8"), "doubtful"),
        (("-tp", "4", "--cpu-offload-gb", "80"), "doubtful"),
        (("-tp", "4", "-pp", "2"), "good"),
        (("-tp", "2", "-dp", "4", "--enable-expert-parallel"), "good"),
    ],
)
def test_only_what_cannot_fit_is_refused(words: tuple[str, ...], verdict: str) -> None:
    found = [one for one in weights(words, *[96 * GIB] * 8) if one.about == "GPU memory"]
    assert [str(one.verdict) for one in found] == [verdict]
    if verdict == "wrong":
        assert found[0].reason == Reason.CUDA_OUT_OF_MEMORY
        assert "600.0 GiB of weights on 4 GPUs are 150.0 GiB a card, which has 96.0" in found[0].text


@pytest.mark.parametrize("config", [None, {"torch_dtype": "float32"}, {}])
def test_weights_that_are_loaded_smaller_than_they_lie_there_are_not_refused(config: dict[str, Any] | None) -> None:
    assert not any(one.verdict == "wrong" for one in weights(("-tp", "4"), *[96 * GIB] * 8, model=FOLDER | {"config": config}))


def test_more_ranks_than_gpus_unless_they_are_elsewhere() -> None:
    one = only(weights(("-tp", "8"), 96 * GIB, 96 * GIB), "wrong")
    assert (one.reason, one.text) == (Reason.BAD_ARGUMENTS, "8 GPUs are asked for by tensor- and pipeline-parallel-size, and 2 are there")
    elsewhere = weights(("-tp", "8", "--nnodes", "4"), 96 * GIB, 96 * GIB)
    assert not any(one.verdict == "wrong" for one in elsewhere)


@pytest.mark.parametrize(
    "reading",
    [
        GpuReading(known=False, tool="nvidia-smi", why="it does not answer"),
        GpuReading(known=True, tool="", no_gpus=True),
        GpuReading(known=True, tool="nvidia-smi", gpus=(GpuMemory(0, "GPU-0", "card", None, None),)),
    ],
)
def test_memory_that_is_not_known_is_not_called_enough(reading: GpuReading) -> None:
    found = list(check_weights(line_of((VLLM, "serve", "/m")), FOLDER, reading, "all"))
    assert [str(one.verdict) for one in found if one.about == "GPU memory"] == ["unchecked"]


def test_a_gpu_that_the_host_does_not_have() -> None:
    reading = GpuReading(known=True, tool="nvidia-smi", gpus=(card(1), card(1, 1)))
    assert only(check_gpus(reading, [1, 2]), "wrong").text == "engine.gpus names 2, and the host has 0, 1"
    assert list(check_gpus(reading, [0])) == []
    assert list(check_gpus(GpuReading(known=False, tool="nvidia-smi"), [7])) == []


@pytest.mark.parametrize(("mib", "verdict"), [(50, "wrong"), (1000, "doubtful"), (9000, "good"), (None, "unchecked")])
def test_room(mib: int | None, verdict: str) -> None:
    argv = (VLLM, "serve", "/m")
    asked = asked_of(Launch(argv, {}, None, 8001), line_of(argv), "/m")
    seen = {"disks": {path: {"free_mib": mib} for path in asked.disks}}
    assert {str(one.verdict) for one in check_disks(asked, seen, {"/data": 9000})} == {verdict}


def test_a_secret_of_the_command_line_or_the_environment_is_in_no_finding() -> None:
    text = "argument hunter2secret, key sk-12345678, password of postgres://me:geheim99@db/x"
    argv = (VLLM, "serve", "m", "--hf-token", "hunter2secret")
    report = masked([wrong("arguments", Reason.BAD_ARGUMENTS, text, text, text)], argv, {"MY_API_KEY": "sk-12345678"})
    assert isinstance(report, Report)
    shown = str(report.as_json()) + report.detail
    assert not [secret for secret in ("hunter2secret", "sk-12345678", "geheim99") if secret in shown]
