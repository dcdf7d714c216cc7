"""What single servers write in ways of their own, and what is no answer at all."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.domain.measurement import RequestResult
from workers.bench.stream_reading import End, StreamReading
from workers.bench.whole_text import whole


def read(*chunks: Any, done: bool = True) -> RequestResult:
    reading = StreamReading()
    reading.begin(200)
    for number, chunk in enumerate(chunks):
        reading.feed(b"data: " + json.dumps(chunk).encode() + b"\n\n", 10.0 + number)
    reading.feed(b"data: [DONE]\n\n" if done else b"", 99.0)
    reading.finish()
    return reading.result("p", 0, 9.0, End.COMPLETE)


def delta(**values: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": values, "finish_reason": None}]}


END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


@pytest.mark.parametrize(
    "thought",
    [
        {"reasoning": "Hm"},
        {"thinking": "Hm"},
        {"content": "", "reasoning_details": [{"type": "reasoning.text", "text": "Hm"}]},
        {"reasoning": "Hm", "reasoning_details": [{"type": "reasoning.text", "text": "Hm"}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "Hm"}, {"type": "reasoning.encrypted", "data": "x"}]},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]},
        {"content": [{"type": "thinking", "thinking": "Hm"}]},
    ],
)
def test_reasoning_under_rarer_names(thought: dict[str, Any]) -> None:
    found = read(delta(**thought), delta(content=[{"type": "text", "text": "4"}]), END)
    assert (found.ok, found.reasoning_text, found.text) == (True, "Hm", "4")
    assert (found.ttft_s, found.ttfa_s) == (1.0, 2.0)


def test_a_refusal_is_an_answer() -> None:
    assert read(delta(refusal="I cannot"), END).text == "I cannot"


def test_text_and_a_tool_call_in_one_delta() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}
    found = read(delta(content="so:", tool_calls=[call]), END)
    assert (found.text, found.tool_calls) == ("so:", [{"id": "a", "name": "f", "arguments": "{}"}])


@pytest.mark.parametrize(
    ("last", "tokens"),
    [
        ({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": {"completion_tokens": 3}}]}, 3),
        (END | {"usage": {"completion_tokens": 3.0}}, 3),
        (END | {"usage": {"completion_tokens": "3"}}, None),
        (END | {"usage": {"completion_tokens": True}}, None),
        (END | {"usage": {"completion_tokens": math.nan}}, None),
        (END | {"usage": None}, None),
    ],
)
def test_usage_in_other_places_and_shapes(last: dict[str, Any], tokens: int | None) -> None:
    found = read(delta(content="a"), delta(content="b"), last)
    assert (found.ok, found.completion_tokens) == (True, tokens)


@pytest.mark.parametrize("ids", [["x"], [None], [1.5], [True], "12", 7])
def test_ids_that_are_none(ids: Any) -> None:
    piece = {"choices": [{"index": 0, "delta": {"content": "a"}, "token_ids": ids}], "prompt_token_ids": ids}
    found = read(piece, END)
    assert (found.ok, found.output_token_ids, found.prompt_token_ids, found.estimated_tokens) == (True, None, None, 1)


def test_halves_of_a_character_are_joined_and_a_lone_one_is_replaced() -> None:
    found = read(delta(content="a\ud83d"), delta(content="\ude00b\ud83d"), END)
    assert found.text == "a😀b\N{REPLACEMENT CHARACTER}"
    assert json.loads(found.model_dump_json())["text"] == found.text
    call = {"index": 0, "id": 7, "function": {"name": "f", "arguments": "\ud83d"}}
    assert read(delta(tool_calls=[call]), END).tool_calls == [{"id": "7", "name": "f", "arguments": "\N{REPLACEMENT CHARACTER}"}]


@given(st.text(st.characters()))
def test_whole_text_stays_as_it_is(text: str) -> None:
    assert whole(text) == text


_ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "a", "abort", "\ud83d", "\0"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["text", "type", "index", "function", "id"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def _some(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names, _ODD))


_CHOICE = st.builds(
    lambda choice, inner: choice | {"delta": inner},
    _some("text", "finish_reason", "token_ids", "usage", "index", "message", "error"),
    _some("content", "reasoning", "reasoning_content", "tool_calls", "function_call", "reasoning_details", "refusal"),
)
_CHUNK = st.builds(
    lambda chunk, choice: chunk | {"choices": [choice]},
    _some("usage", "error", "metrics", "meta_info", "timings", "prompt_token_ids", "detail", "code", "status", "error_code"),
    _CHOICE,
)


@settings(deadline=None, max_examples=150)
@given(st.lists(_CHUNK, max_size=3), st.booleans())
def test_whatever_a_server_writes_is_judged_and_can_be_written_down(chunks: list[dict[str, Any]], done: bool) -> None:
    found = read(*chunks, done=done)
    assert found.ok is (found.reason is None)
    assert json.loads(found.model_dump_json())["prompt"] == "p"
