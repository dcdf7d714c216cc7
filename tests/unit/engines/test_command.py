"""Commands: what may be written of them, their command line, and how far they say they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from service.domain.errors import SpecError
from service.domain.spec import Spec
from service.domain.specfile import Document, parse, validate
from service.domain.wording import status_text, where_text
from workers.engines.base import Engine, Launch
from workers.engines.command import LINE_CHARS, CommandEngine, ProgressPattern

MakeEngine = Callable[..., Engine]

HEAD = "name: x\nengine:\n  kind: command\n"
STEP = r"step (?P<done>\d+)/(?P<total>\d+)"


def launch(engine_of: MakeEngine, **keys: Any) -> Launch:
    engine = engine_of(kind="command", **keys)
    assert isinstance(engine, CommandEngine)
    return engine.launch()


def test_a_list_is_the_command_line(engine_of: MakeEngine) -> None:
    found = launch(engine_of, run=["python3", "-c", "print(1)"], cwd="/data", env={"A": "b"})
    assert (found.argv, found.cwd, found.port) == (("python3", "-c", "print(1)"), "/data", 0)
    assert found.env["A"] == "b"
    assert found.env["PYTHONUNBUFFERED"] == "1"


def test_a_text_is_a_script_that_ends_at_its_first_failure(engine_of: MakeEngine) -> None:
    assert launch(engine_of, run="false\necho on").argv == ("/bin/sh", "-eu", "-c", "false\necho on")


@pytest.mark.parametrize(("gpus", "seen"), [("none", ""), ([2, 0], "2,0"), ("all", None)])
def test_only_the_gpus_that_were_asked_for_are_seen(engine_of: MakeEngine, gpus: Any, seen: str | None) -> None:
    assert launch(engine_of, run=["x"], gpus=gpus).env.get("CUDA_VISIBLE_DEVICES") == seen


def test_the_file_as_it_is_written_and_read_back() -> None:
    [spec] = parse(HEAD + "  run: [sleep, 010, true, 1.50]\n  env: {A: 010, B: on}\n  timeout: 90m\n")
    assert spec.engine.kind == "command"
    assert spec.engine.run == ["sleep", "010", "true", "1.50"]
    assert spec.engine.env == {"A": "010", "B": "on"}
    assert (spec.engine.timeout, spec.engine.gpus, spec.engine.model_id) == (5400, "none", "")
    written = spec.model_dump(mode="json")
    assert not {"bench", "load"} & set(written)
    assert validate(Document(written)) == Spec.model_validate(written) == spec
    [server] = parse("name: x\nengine: {kind: vllm, model: m}\n")
    assert {"bench", "load"} <= set(server.model_dump(mode="json"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("  run: a\nbench: {repeat: 2}\n", ["line 5", "bench", "a command serves nothing"]),
        ("  run: a\nload:\n  timeout: 3h\n", ["line 5", "load", "engine.timeout"]),
        ("  run: a\n  artefacts: [x]\n", ["line 5", "did you mean artifacts?"]),
        ("  model: m\n", ["line 4", "model", "run"]),
        ("  timeout: 5m\n", ["engine.run is missing"]),
        ("  run: []\n", ["line 4", "engine.run"]),
        ("  run: ['']\n", ["nothing to run"]),
        ("  run: {a: 1}\n", ["list of words"]),
        ("  run: a\n  cwd: here\n", ["line 5", "absolute path"]),
        ("  run: a\n  gpus: [0]\n  env: {CUDA_VISIBLE_DEVICES: 1}\n", ["engine.gpus", "CUDA_VISIBLE_DEVICES=1"]),
        ("  run: a\n  gpus: [1, 1]\n", ["each GPU once"]),
        ("  run: a\n  artifacts: [out/../../x]\n", ["line 5", "`..`"]),
        ("  run: a\n  progress: '(a'\n", ["line 5", "no regular expression"]),
        ("  run: a\n  progress: 'step'\n", ["line 5", "percent"]),
        ("  run: a\n  progress: '(a)(b)'\n", ["line 5", "percent"]),
        ("  run: a\n  progress: '(?P<done>a)'\n", ["line 5", "total"]),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, words: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        parse(HEAD + text)
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "lines", "shown"),
    [
        (STEP, ["step 1/8", "step 2/8 loss 3"], {"percent": 25, "done": 2, "total": 8, "text": "step 2/8"}),
        (STEP, ["step 1/8", "talk"], {"percent": 12.5, "done": 1, "total": 8, "text": "step 1/8"}),
        (r"(?P<percent>[\d.]+) ?%", ["1 %, 40.5%"], {"percent": 40.5, "done": None, "total": None, "text": "40.5%"}),
        (r"(\d+)%", ["\r 1%\r 2%\r 3%"], {"percent": 3, "done": None, "total": None, "text": "3%"}),
        (r"at (\S+)", ["at 250"], {"percent": 100, "done": None, "total": None, "text": "at 250"}),
        (r"(?P<done>\S+) of (?P<total>\S+)", ["1,500 of 3,000"], {"percent": 50, "done": 1500, "total": 3000, "text": "1,500 of 3,000"}),
        (STEP, ["step 1/0"], None),
        (r"at (\S+)", ["at nan"], None),
        (r"at (\S+)", ["at inf"], None),
        (r"at (\S+)", ["at last"], None),
        (STEP, ["nothing"], None),
        (STEP, [], None),
        (STEP, ["x" * LINE_CHARS + " step 1/2"], None),
        (None, ["step 1/2"], None),
    ],
)
def test_progress(pattern: str | None, lines: list[str], shown: dict[str, Any] | None) -> None:
    found = ProgressPattern(pattern).look(lines)
    assert (found.shown() if found else None) == shown


def test_a_pattern_that_never_comes_to_an_end_is_given_up() -> None:
    pattern = ProgressPattern(r"(a|aa)+$", search_s=0.5)
    assert pattern.look(["a" * 200 + "!"]) is None
    assert "engine.progress" in pattern.given_up
    assert pattern.look(["a"]) is None


def test_a_command_is_spoken_of_as_one() -> None:
    assert status_text("running", "measure", None, None, "command") == "Running"
    assert status_text("finished", "measure", "failed", "command_failed", "command") == "Failed: the command did not end with exit status 0"
    progress = {"percent": 25.0, "done": 2, "total": 8, "text": "step 2/8"}
    assert where_text("running", "measure", progress, 0, "") == "25 %, 2 of 8: step 2/8"
