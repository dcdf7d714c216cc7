"""Changing arguments of a command line that somebody else wrote."""

from __future__ import annotations

from typing import Any

import pytest

from service.domain.errors import UsageError
from workers.basecommand import BaseCommand
from workers.engines.merging import Change, Merged, Wanted, merge
from workers.execline import split_words


def base(line: str, lead: int = 0, **variables: str) -> BaseCommand:
    return BaseCommand("vllm.service", tuple(word.text for word in split_words(line)), lead, variables)


def merged(line: str, lead: int = 0, variables: dict[str, str] | None = None, **wanted: Any) -> Merged:
    return merge(base(line, lead, **variables or {}), Wanted(**wanted))


def after(line: str, variables: dict[str, str] | None = None, **args: Any) -> str:
    """What follows the model, changed."""
    words = merged(
        f"/opt/vllm serve m {line}", variables=variables, args={name.replace("__", "."): value for name, value in args.items()}
    ).words
    assert words[:3] == ("/opt/vllm", "serve", "m")
    return " ".join(words[3:])


@pytest.mark.parametrize(
    ("line", "args", "made"),
    [
        ("--aa 1 --bb 2 --cc 3", {"bb": 9}, "--aa 1 --bb 9 --cc 3"),
        ("--aa 1 --bb=2", {"bb": 9}, "--aa 1 --bb 9"),
        ("--a_b 1", {"a-b": 9}, "--a-b 9"),
        ("--a-b 1", {"a_b": 9}, "--a_b 9"),
        ("--aa 1", {"bb": 9}, "--aa 1 --bb 9"),
        ("--aa 1 --bb 2 --aa 3 --aa=4", {"aa": 9}, "--bb 2 --aa 9"),
        ("--aa 1", {"aa": 1}, "--aa 1"),
        ("--aa=1", {"aa": "1"}, "--aa=1"),
        ("--aa 1 --bb 2", {"aa": None}, "--bb 2"),
        ("--aa 1", {"xx": None}, "--aa 1"),
        ("--aa -1 --bb 2", {"aa": 9}, "--aa 9 --bb 2"),
        ("--aa 1", {"aa": -2}, "--aa=-2"),
        ("-tp 8 --bb 2", {"tensor-parallel-size": 4}, "--tensor-parallel-size 4 --bb 2"),
        ("-pp=2", {"pipeline-parallel-size": None}, ""),
        ("-dp 2 -ep", {"enable-expert-parallel": False}, "-dp 2 --no-enable-expert-parallel"),
        ("--device-memory-utilization 0.9", {"gpu-memory-utilization": 0.8}, "--gpu-memory-utilization 0.8"),
        ("-O3 --bb 1", {"optimization-level": 0}, "--optimization-level 0 --bb 1"),
        ("-O 3", {"O": 1}, "-O 1"),
        ("-O=2", {"optimization-level": None}, ""),
        ("-O3", {"compilation-config": {"mode": 3}}, '-O3 --compilation-config {"mode":3}'),
        ("-O.level 2 --bb", {"compilation-config": None}, "--bb"),
        ("-O{} -cc.mode 3 --bb", {"compilation-config": {"mode": 0}}, '--compilation-config {"mode":0} --bb'),
        ("--enable-x --bb", {"enable-x": False}, "--no-enable-x --bb"),
        ("--no-enable-x", {"enable-x": True}, "--enable-x"),
        ("--no-enable-x --bb", {"enable-x": None}, "--bb"),
        ("--no-enable-x", {"enable-x": False}, "--no-enable-x"),
        ("--lora-modules a=b c=d --bb", {"lora-modules": None}, "--bb"),
        ("--served-model-name a b --bb", {"bb": 1}, "--served-model-name a b --bb 1"),
        ("--cc '{\"a\": 1}'", {"cc": {"a": 1}}, '--cc {"a": 1}'),
        ("--cc '{\"a\": 1}'", {"cc": {"a": 2}}, '--cc {"a":2}'),
        ("--aa $$x --bb 100%%", {"aa": "50% of $y"}, "--aa 50%% of $$y --bb 100%%"),
        ("--aa ${B} --cc %H", {"dd": 1}, "--aa ${B} --cc %H --dd 1"),
        ("--xx.a 1 --xx.b 2 --yy", {"xx.a": 9}, "--xx.a 9 --xx.b 2 --yy"),
        ("--xx.a 1 --xx '{}' --yy", {"xx": {"c": 1}}, '--xx {"c":1} --yy'),
    ],
)
def test_arguments(line: str, args: dict[str, Any], made: str) -> None:
    assert " ".join(merged(f"/opt/vllm serve m {line}", args=args).words[3:]) == made


@pytest.mark.parametrize(
    ("line", "model", "made"),
    [
        ("/v/vllm serve m --a 1", "n", "/v/vllm serve n --a 1"),
        ("/v/vllm serve --a 1 --enforce-eager m", "n", "/v/vllm serve n --a 1 --enforce-eager"),
        ("/v/vllm serve --a 1 --enforce-eager m", None, "/v/vllm serve m --a 1 --enforce-eager"),
        ("/v/vllm serve --served-model-name a b --a m", None, "/v/vllm serve --served-model-name a b --a m"),
        ("/v/vllm serve --a 1 --model m --b", "n", "/v/vllm serve n --a 1 --b"),
        ("/v/vllm serve --a 1 --model=m", "m", "/v/vllm serve --a 1 --model=m"),
        ("/v/vllm serve", "n$", "/v/vllm serve n$$"),
        ("/v/vllm serve $MODEL --a", "n", "/v/vllm serve n --a"),
        ("/v/python -u -X dev -m vllm.entrypoints.openai.api_server --model m --a", "n", None),
        ("/v/python3.11 /v/bin/vllm serve m", "n", "/v/python3.11 /v/bin/vllm serve n"),
        ("python -m vllm.entrypoints.cli.main serve m", "n", "python -m vllm.entrypoints.cli.main serve n"),
    ],
)
def test_the_model(line: str, model: str | None, made: str | None) -> None:
    found = merged(line, variables={"MODEL": "m"}, model=model)
    assert " ".join(found.words) == (made or line.replace("--model m", "--model n"))


@pytest.mark.parametrize(
    ("line", "wanted", "named"),
    [
        ("serve m", {}, "m"),
        ("serve m --served-model-name a b", {}, "a"),
        ("serve m --served-model-name a b", {"served_model_name": "c"}, "c"),
        ("serve m --served-model-name a b --x 1", {"args": {"served-model-name": None}}, "m"),
        ("serve m --served-model-name a", {"model": "n"}, "a"),
        ("serve --model m --served-model-name=${NAME}", {}, "kimi"),
        ("serve m --served-model-name %H-x", {}, ""),
        ("serve m --served-model-name=%H", {}, ""),
        ("serve m --config x.yaml", {}, ""),
        ("serve m --config x.yaml --served-model-name a", {}, "a"),
        ("serve --served-model-name $NAMES --x", {}, "one"),
    ],
)
def test_the_id_that_requests_name(line: str, wanted: dict[str, Any], named: str) -> None:
    assert merged(f"/v/vllm {line}", variables={"NAME": "kimi", "NAMES": "one two"}, port=1, **wanted).model_id == named


def test_the_port() -> None:
    assert merged("/v/vllm serve m --port 8000 --x", port=8001).words[3:] == ("--port", "8001", "--x")
    assert merged("/v/vllm serve m --uds /s", port=8001).words[3:] == ("--port", "8001")
    assert [merged(f"/v/vllm serve m {line}", variables={"P": "81"}).port for line in ("", "--port 9", "--port=${P}1", "--port $P")] == [
        8000,
        9,
        811,
        81,
    ]
    for line, why in (("--port $Q", "--port"), ("--port x", "--port is x"), ("--config c.yaml", "c.yaml")):
        with pytest.raises(UsageError) as caught:
            merged(f"/v/vllm serve m {line}", variables={"Q": "x"})
        assert why in str(caught.value)
        assert "engine.port" in caught.value.todo


def test_speculation_is_replaced_or_taken_out() -> None:
    spec = '{"method":"ngram","num_speculative_tokens":5}'
    for line in (
        "--speculative-config '{}'",
        "--speculative_config.method x --speculative-config.k=1",
        "-sc '{}' --spec-method mtp --spec-tokens 2",
    ):
        words = merged(f"/v/vllm serve m {line} --x 1", speculative=spec).words[3:]
        assert sorted(words) == sorted(["--speculative-config", spec, "--x", "1"])
        assert merged(f"/v/vllm serve m {line} --x 1", args={"speculative-config": None}).words[3:] == ("--x", "1")
    both = merged("/v/vllm serve m", args={"speculative-config": None}, speculative=spec)
    assert both.words[3:] == ("--speculative-config", spec)


def test_arguments_out_of_a_variable() -> None:
    extra = {"EXTRA": "--aa 1 --port 7 --enforce-eager", "FLAG": "--bb", "NAMES": "x y"}
    assert after("$EXTRA --z", extra, aa=2) == "$EXTRA --z --aa 2"
    assert after("--aa 0 $EXTRA", extra, aa=2) == "$EXTRA --aa 2"
    assert after("--served-model-name $NAMES --z", extra, **{"served-model-name": None}) == "--z"
    assert merged("/v/vllm serve m $EXTRA", variables=extra, port=8001).words[3:] == ("$EXTRA", "--port", "8001")
    assert merged("/v/vllm serve m $EXTRA", variables=extra).port == 7
    assert merged("/v/vllm serve m $EXTRA", variables=extra, port=8001).argv == (
        "/v/vllm", "serve", "m", "--aa", "1", "--port", "7", "--enforce-eager", "--port", "8001",
    )  # fmt: skip
    for line, name in (("$EXTRA", "aa"), ("$FLAG", "bb")):
        with pytest.raises(UsageError) as caught:
            after(line, extra, **{name: None})
        assert f"set {line[1:]} in engine.env" in caught.value.todo
    assert merge(base("/v/vllm serve m $EXTRA", **extra), Wanted(env={"EXTRA": "--port 9"})).port == 9
    with pytest.raises(UsageError):
        merged("/v/vllm serve $ALL", variables={"ALL": "m --aa 1"}, model="n")


def test_changes_are_told_and_secrets_are_not() -> None:
    found = merged(
        "/v/vllm serve m --a 1 --enable-x --api-key hush --same 1 --served-model-name p q",
        args={"a": 2, "enable-x": False, "new": [1], "same": 1, "gone": None},
        model="n", served_model_name="r", port=8001, own_api_key=True, executable="/w/vllm",
    )  # fmt: skip
    assert found.changes == (
        Change("program", "/v/vllm", "/w/vllm"), Change("model", "m", "n"), Change("--a", "1", "2"), Change("--enable-x", "on", "off"),
        Change("--new", None, "[1]"), Change("--served-model-name", "p q", "r"),
        Change("--port", None, "8001"), Change("--api-key", "***", None),
    )  # fmt: skip
    assert "hush" not in " ".join(found.words)


def test_another_program() -> None:
    assert merged("env A=1 /v/vllm serve m", lead=2, executable="/w/$v").words == ("env", "A=1", "/w/$$v", "serve", "m")
    assert merged("/v/vllm serve m", executable="/w/$v%").words[0] == "/w/$v%%"
    assert merged("/v/python -m vllm.entrypoints.openai.api_server", executable="/w/python3").words[0] == "/w/python3"
    with pytest.raises(UsageError, match="Python interpreter"):
        merged("/v/python -m vllm.entrypoints.openai.api_server", executable="/w/vllm")


def test_a_variable_in_front_gives_way_to_the_experiments() -> None:
    found = merge(base("env A=1 B=2 /v/vllm serve m --x ${A}", 3), Wanted(env={"A": "9"}))
    assert found.words == ("env", "B=2", "/v/vllm", "serve", "m", "--x", "${A}")
    assert found.argv == ("/v/vllm", "serve", "m", "--x", "9")


@pytest.mark.parametrize(
    ("line", "wanted", "said"),
    [
        ("--config x.yaml", {}, "x.yaml"),
        ("--config x.yaml", {"args": {"a": None}}, "where x.yaml sets it"),
        ("stray", {}, "belong to no option: stray"),
        ("--api-key k", {}, "engine.api_key"),
        ("--cc '{}'", {"args": {"cc.a": 1}}, "makes vLLM forget"),
    ],
)
def test_warnings(line: str, wanted: dict[str, Any], said: str) -> None:
    assert any(said in warning for warning in merged(f"/v/vllm serve m {line}", port=1, **wanted).warnings)
    assert merged("/v/vllm serve m --a 1", args={"a": None}, own_api_key=True, port=1).warnings == ()


@pytest.mark.parametrize(
    "line", ["/usr/bin/python train.py", "/opt/sglang -m x", "/v/vllm bench m", "/v/vllm", "/v/python -m sglang.launch_server", "/v/python"]
)
def test_what_is_not_vllm(line: str) -> None:
    with pytest.raises(UsageError) as caught:
        merged(line)
    assert "vllm.service does not start `vllm serve`" in caught.value.what
    assert line.rpartition("/")[2][:5] in caught.value.why
