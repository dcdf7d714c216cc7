from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from expctl import specfiles
from service.domain.engine_spec import VllmEngine
from service.domain.errors import SpecError, UsageError
from service.domain.spec import Prompt, Spec

FILE = """\
name: base
engine:
  kind: vllm
  model: m
  args: {max-num-seqs: 8}
bench:
  repeat: 5
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "exp.yaml"
    path.write_text(FILE)
    return path


def read(file: Path, *changes: str) -> Spec:
    [found] = specfiles.read(str(file), list(changes))
    return found


def engine(spec: Spec) -> VllmEngine:
    assert isinstance(spec.engine, VllmEngine)
    return spec.engine


def test_a_file_as_it_is(file: Path) -> None:
    assert (read(file).name, read(file).bench.repeat) == ("base", 5)


def test_several_documents_each_get_the_changes(file: Path) -> None:
    file.write_text(f"{FILE}---\n{FILE.replace('base', 'other')}")
    assert [(spec.name, spec.bench.repeat) for spec in specfiles.read(str(file), ["bench.repeat=2"])] == [("base", 2), ("other", 2)]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(FILE.encode())))
    assert specfiles.read("-", [])[0].name == "base"


@pytest.mark.parametrize(
    ("change", "where", "value"),
    [
        ("bench.repeat=3", ("bench", "repeat"), 3),
        ("bench.concurrency=[1, 4]", ("bench", "concurrency"), [1, 4]),
        ("load.stall=90s", ("load", "stall"), 90.0),
        ("name=other", ("name",), "other"),
        ("name=a=b", ("name",), "a=b"),
        ("engine.args.max-num-seqs=16", ("engine", "args", "max-num-seqs"), 16),
        ("engine.args.enforce-eager=true", ("engine", "args", "enforce-eager"), True),
        ("engine.args.max-num-seqs=", ("engine", "args", "max-num-seqs"), None),
        ("engine.speculative={method: ngram}", ("engine", "speculative", "method"), "ngram"),
        ("engine.speculative.method=ngram", ("engine", "speculative", "method"), "ngram"),
        ("engine.env.NCCL_DEBUG=INFO", ("engine", "env", "NCCL_DEBUG"), "INFO"),
        ("engine.env.CODE=010", ("engine", "env", "CODE"), "010"),
    ],
)
def test_set(file: Path, change: str, where: tuple[str, ...], value: object) -> None:
    found = read(file, change).model_dump(mode="json")
    for part in where:
        found = found[part]
    assert found == value


def test_the_last_change_counts(file: Path) -> None:
    assert read(file, "bench.repeat=2", "bench.repeat=4").bench.repeat == 4


def test_a_name_may_look_like_a_number(file: Path) -> None:
    assert read(file, "name=2025").name == "2025"


@pytest.mark.parametrize("text", ["1", "true"])
def test_an_environment_value_is_text_as_it_is_in_a_file(file: Path, text: str) -> None:
    assert engine(read(file, f"engine.env.X={text}")).env == {"X": text}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("bench.repeat", "--set bench.repeat is not of the form key=value"),
        ("=3", "--set =3 is not of the form key=value"),
        ("bench.concurrency=[1", "the value of --set bench.concurrency, line 1: not YAML"),
    ],
)
def test_a_change_that_is_none(file: Path, change: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(file, change)
    assert caught.value.what.startswith(what)


@pytest.mark.parametrize(("change", "hint"), [("bench.repeats=3", "did you mean repeat?"), ("bench.repeat=x", "bench.repeat")])
def test_a_change_is_checked_like_the_file(file: Path, change: str, hint: str) -> None:
    with pytest.raises(SpecError) as caught:
        read(file, change)
    assert hint in caught.value.what


def test_a_file_without_experiment_and_one_that_is_not_there(file: Path) -> None:
    file.write_text("# nothing\n")
    with pytest.raises(SpecError, match="is empty"):
        read(file)
    with pytest.raises(UsageError) as caught:
        read(file.with_name("no.yaml"))
    assert caught.value.why == "No such file or directory"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path)


def test_prompts_of_a_file_are_put_in(file: Path) -> None:
    file.with_name("mine.jsonl").write_text('{"id": "a", "prompt": "p"}\n{"messages": [{"role": "user", "content": "q"}]}\n')
    prompts = read(file, "bench.prompts=mine.jsonl").bench.prompts
    assert prompts == [Prompt(id="a", prompt="p"), Prompt(id="p1", messages=[{"role": "user", "content": "q"}])]


def test_prompts_lie_beside_the_file_and_not_where_one_stands(file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    below = tmp_path / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    (below / "mine.jsonl").write_text('{"prompt": "wrong"}\n')
    file.with_name("mine.jsonl").write_text('{"prompt": "right"}\n')
    assert read(file, "bench.prompts=mine.jsonl").bench.prompts == [Prompt(id="p0", prompt="right")]
    assert read(file, f"bench.prompts={below}/mine.jsonl").bench.prompts == [Prompt(id="p0", prompt="wrong")]


@pytest.mark.parametrize(
    ("text", "what"),
    [(None, "cannot be read"), ("", "holds no prompt"), ("{", "line 1 is not JSON"), ('{"prompt": "p", "x": 1}', "line 1 is not a prompt")],
)
def test_prompts_that_are_none(file: Path, text: str | None, what: str) -> None:
    if text is not None:
        file.with_name("mine.jsonl").write_text(text)
    with pytest.raises(UsageError) as caught:
        read(file, "bench.prompts=mine.jsonl")
    assert what in caught.value.what


def test_the_built_in_prompts_keep_their_name(file: Path) -> None:
    assert read(file, "bench.prompts=five").bench.prompts == "five"


def test_sweep(file: Path) -> None:
    found = specfiles.read(str(file), ["bench.repeat=2"], ["engine.args.max-num-seqs=8,16"])
    assert [(spec.name, engine(spec).args, spec.bench.repeat) for spec in found] == [
        ("base max-num-seqs=8", {"max-num-seqs": 8}, 2),
        ("base max-num-seqs=16", {"max-num-seqs": 16}, 2),
    ]
