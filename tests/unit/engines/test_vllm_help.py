"""Arguments and speculative configs held against what the engine takes, before it is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from workers.engines.vllm_help import HelpOption, object_to, parse_help
from workers.engines.vllm_speculative import lookup_range, object_to_speculation

HELP = (Path(__file__).parents[2] / "data" / "vllm-0.32" / "help.txt").read_text()
OLD_HELP = """\
usage: vllm serve <model_tag> [options]

options:
  --disable-log-requests
                        Disable logging requests.
  --speculative-model SPECULATIVE_MODEL
                        The name of the draft model.
  --block-size {8,16,32,64,128}
                        Token block size.
  --tensor-parallel-size TENSOR_PARALLEL_SIZE, -tp TENSOR_PARALLEL_SIZE
"""


def test_a_help_text_as_options() -> None:
    options = parse_help(HELP)
    assert options["-tp"] is options["--tensor-parallel-size"]
    assert options["--no-enforce-eager"] == HelpOption(("--enforce-eager", "--no-enforce-eager"), takes_value=False)
    assert options["--served-model-name"].many
    assert options["--speculative-config"].json
    assert "bfloat16" in options["--dtype"].choices
    assert options["--dtype"].name == "--dtype"
    assert parse_help("no help at all\n") == {}


@pytest.mark.parametrize(
    ("words", "argument", "nearest"),
    [
        (["--max-model-lenn", "4096"], "--max-model-lenn", "--max-model-len"),
        (["--max_model_lenn=4096"], "--max_model_lenn", "--max-model-len"),
        (["--dtype", "bfloat166"], "--dtype", "bfloat16"),
        (["--enforce-eager=1"], "--enforce-eager", None),
        (["--port"], "--port", None),
        (["--port", "--enforce-eager"], "--port", None),
        (["--speculative-config", '{"method":"ngram"'], "--speculative-config", None),
    ],
)
def test_what_this_version_refuses(words: list[str], argument: str, nearest: str | None) -> None:
    [objection] = object_to(words, parse_help(HELP))
    assert (objection.argument, objection.nearest) == (argument, nearest)


@pytest.mark.parametrize(
    "words",
    [
        ["org/m", "--max_model_len", "4096", "-tp", "8"],
        ["--max-model-le", "4096"],
        ["-O3", "-cc.mode=3", "--speculative-config.method", "ngram"],
        ["--served-model-name", "a", "b"],
        ["--speculative-config", '{"method":"ngram","num_speculative_tokens":5}'],
        ["--gpu-memory-utilization", "0.9", "--no-enable-prefix-caching"],
    ],
)
def test_what_this_version_takes(words: list[str]) -> None:
    assert object_to(words, parse_help(HELP)) == []


def test_each_version_is_asked_for_itself() -> None:
    old = parse_help(OLD_HELP)
    assert object_to(["--disable-log-requests", "--speculative-model", "m"], old) == []
    assert object_to(["--block-size", "17"], old)[0].argument == "--block-size"
    assert "--enable-log-requests" in object_to(["--disable-log-requests"], parse_help(HELP))[0].text
    assert object_to(["--anything"], {}) == []


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 5, "prompt_lookup_max": 3}, "prompt_lookup_min (5)"),
        ({"method": "ngrm", "num_speculative_tokens": 5}, "ngrm is not known; the nearest valid one: ngram"),
        ({"method": "ngram"}, "num_speculative_tokens is missing"),
        ({"method": "ngram", "num_speculative_tokens": 0}, "at least 1"),
        ({"method": "ngram", "num_speculative_tokens": True}, "at least 1"),
        ({"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 0}, "prompt_lookup_max must be"),
        ({"method": "eagle3", "num_speculative_tokens": 3}, "needs speculative.model"),
        ({"num_speculative_tokens": 3}, "needs a method"),
        ({"method": "mtp", "draft_tensor_parallel_size": 4}, "must be 1 or tensor-parallel-size (8)"),
        ({"method": "mtp", "tensor_parallel_size": 1}, "draft_tensor_parallel_size is meant"),
        ({"method": "mtp", "prompt_lookupmax": 3}, "the nearest valid one: prompt_lookup_max"),
    ],
)
def test_what_a_speculative_config_may_not_say(config: dict[str, object], words: str) -> None:
    [objection] = object_to_speculation(config, tensor_parallel=8)
    assert words in objection.text


@pytest.mark.parametrize(
    "config",
    [
        {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4},
        {"method": "suffix"},
        {"method": "mtp"},
        {"method": "deepseek_mtp", "num_speculative_tokens": 1},
        {"model": "org/eagle3-head", "num_speculative_tokens": 3, "draft_tensor_parallel_size": 1},
    ],
)
def test_what_a_speculative_config_may_say(config: dict[str, object]) -> None:
    assert object_to_speculation(config, tensor_parallel=8) == []


def test_one_end_of_the_lookup_gives_the_other() -> None:
    assert lookup_range({}) == (5, 5)
    assert lookup_range({"prompt_lookup_max": 4}) == (4, 4)
    assert lookup_range({"prompt_lookup_min": 2, "prompt_lookup_max": 4}) == (2, 4)
