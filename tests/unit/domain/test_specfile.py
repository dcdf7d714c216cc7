from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.engine_spec import VllmEngine
from service.domain.errors import SpecError
from service.domain.specfile import parse

MINIMAL = "name: x\nengine: {kind: vllm, model: m}\n"


def engine(text: str) -> VllmEngine:
    [spec] = parse(text)
    assert isinstance(spec.engine, VllmEngine)
    return spec.engine


def test_yaml_1_2_words_stay_what_they_look_like() -> None:
    found = engine(
        "name: x\nengine:\n  kind: vllm\n  model: m\n  args: {a: 22:00, b: on, c: 010, d: 0.90, e: 131072, f: true, g: no, h: null}\n"
    )
    assert found.args == {"a": "22:00", "b": "on", "c": "010", "d": "0.90", "e": 131072, "f": True, "g": "no", "h": None}


def test_environment_values_are_the_texts_that_were_written() -> None:
    found = engine("name: x\nengine:\n  kind: vllm\n  model: m\n  env: {A: 010, B: true, C: 1.50, D: 1e3, E: off, F: 'x'}\n")
    assert found.env == {"A": "010", "B": "true", "C": "1.50", "D": "1e3", "E": "off", "F": "x"}


def test_a_number_where_a_text_is_wanted_is_its_text() -> None:
    [spec] = parse(MINIMAL.replace("name: x", "name: 2025"))
    assert spec.name == "2025"


def test_a_number_written_oddly_is_still_a_number_where_one_is_wanted() -> None:
    [spec] = parse(MINIMAL + "priority: 010\n")
    assert spec.priority == 10


def test_durations() -> None:
    [spec] = parse(MINIMAL + "load: {timeout: 1h30m, stall: 90}\n")
    assert (spec.load.timeout, spec.load.stall) == (5400, 90)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: x\nengine:\n  kind: vllm\n  model: m\n  modle: m\n", ["line 5", "modle", "did you mean model?"]),
        ("name: x\nengine: {kind: vllm, model: m}\nprioritty: 3\n", ["line 3", "prioritty", "priority"]),
        ("name: x\nengine: {kind: vllm, model: m}\nbench:\n  repaet: 3\n", ["line 4", "in bench", "repeat"]),
        ("name: x\nengine: {kind: vlm, model: m}\n", ["line 2", "engine.kind", "vllm, endpoint"]),
        ("name: x\nengine: {kind: vllm, model: m}\nbench:\n  repeat: five\n", ["line 4", "bench.repeat", "five"]),
        ("name: x\nengine: {kind: vllm, model: m}\nload: {stall: 3 parsecs}\n", ["line 3", "30m"]),
        ("name: x\nname: y\n", ["line 2", "twice"]),
        ("engine: {kind: vllm, model: m}\n", ["name is missing"]),
        ("- a\n", ["mapping"]),
        ("", ["empty"]),
        ("a: [1\n", ["not YAML", "line"]),
        ("a: \tb\n\t- c", ["not YAML"]),
        ("name: x\nengine: {kind: vllm, model: m, api_key: sk-123}\n", ["api_key", "env:VLLM_API_KEY"]),
        ("name: x\nengine: {kind: vllm, model: m, args: {port: 3}}\n", ["engine.port"]),
        ("? [a]\n: b\n", ["key must be a word"]),
        ("x: &x [*x]\n", ["expands to too much"]),
        ("name: x\nengine:\n  kind: vllm\n  model: m\n  speculative: {x: 1e999}\n", ["line 5: engine.speculative.x: inf is no number"]),
        (f"{MINIMAL}bench:\n  extra_body:\n    seed: {2**64}\n", ["line 5: bench.extra_body.seed: has more than 64 bits"]),
        (f"{MINIMAL}not_before: 25:00\n", ["line 3: not_before: write a time such as 22:00"]),
    ],
)
def test_errors_say_what_and_where(text: str, words: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        parse(text)
    message = str(caught.value)
    assert all(word in message for word in words), message


def test_a_bomb_of_aliases_is_refused() -> None:
    lines = ["a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    for here, before in zip("bcdefgh", "abcdefg", strict=True):
        lines.append(f"{here}: &{here} [{', '.join(['*' + before] * 10)}]")
    with pytest.raises(SpecError, match="expands to too much"):
        parse("\n".join(lines))


def test_binary_and_large_files_are_refused() -> None:
    with pytest.raises(SpecError, match="not UTF-8"):
        parse(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="too large"):
        parse("# " + "x" * 5_000_000)


def test_several_documents_are_several_experiments() -> None:
    assert [spec.name for spec in parse(f"{MINIMAL}---\n{MINIMAL.replace('name: x', 'name: y')}")] == ["x", "y"]


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_whatever_comes_the_answer_is_a_sentence(data: bytes | str) -> None:
    try:
        parse(data)
    except SpecError as error:
        assert error.what  # noqa: PT017 - the error is the usual answer, a spec the rare one
