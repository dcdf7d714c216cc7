"""What a response's bytes mean, without a network."""

from __future__ import annotations

from typing import Any

import pytest

from service.domain.measurement import RequestResult
from service.domain.reasons import Reason
from workers.bench.stream_reading import End, StreamReading


def read(*parts: tuple[float, bytes], status: int = 200, end: End = End.COMPLETE) -> RequestResult:
    reading = StreamReading()
    reading.begin(status)
    for at, data in parts:
        reading.feed(data, at)
    reading.finish()
    return reading.result("p", 0, 10.0, end)


def test_role_and_empty_deltas_are_no_first_token(say: Any) -> None:
    result = read(
        (10.1, say.delta(role="assistant", content="")),
        (10.2, say.delta(content=None) + say.delta(content="", reasoning="")),
        (10.5, say.delta(reasoning="hm")),
        (10.6, say.delta(reasoning=" so")),
        (10.8, say.delta(content="a")),
        (11.0, say.delta("stop", content="b") + say.usage(6, completion_tokens_details={"reasoning_tokens": 3}) + say.DONE),
    )
    assert result.ok
    assert result.warnings == []
    assert (result.ttft_s, result.ttfa_s, result.e2e_s) == pytest.approx((0.5, 0.8, 1.0))
    assert (result.tpot_s, result.tps) == pytest.approx((0.1, 10.0))
    assert result.itl_ms == pytest.approx([100, 200, 200])
    assert (result.text, result.reasoning_text) == ("ab", "hm so")
    assert (result.prompt_tokens, result.completion_tokens, result.reasoning_tokens) == (9, 6, 3)
    assert (result.tokens_from, result.estimated_tokens) == ("usage", None)


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning": "hm"},
        {"reasoning_content": "hm"},
        {"reasoning": "hm", "reasoning_content": "hm"},
        {"reasoning": None, "reasoning_content": "hm"},
    ],
)
def test_reasoning_has_two_names_and_is_counted_once(say: Any, delta: dict[str, Any]) -> None:
    result = read((10.5, say.delta(**delta)), (10.6, say.delta("stop", content="a") + say.usage(4) + say.DONE))
    assert result.reasoning_text == "hm"
    assert result.reasoning_tokens is None
    assert len(result.itl_ms) == 1


def test_reasoning_alone_is_output_without_an_answer(say: Any) -> None:
    result = read((10.5, say.delta(reasoning="a")), (10.6, say.delta("length", reasoning="b") + say.usage(2) + say.DONE))
    assert result.ok
    assert result.ttft_s == pytest.approx(0.5)
    assert result.ttfa_s is None


def test_several_tokens_a_chunk_are_counted_by_usage(say: Any) -> None:
    result = read(
        (10.4, say.delta(content="The")),
        (10.5, say.delta(content=" quick brown fox")),
        (10.6, say.delta("stop", content=" jumps over")),
        (10.7, say.usage(11) + say.DONE),
    )
    assert (result.tpot_s, result.tps) == pytest.approx((0.02, 50.0))
    assert len(result.itl_ms) == 2


def test_usage_on_every_chunk_is_a_running_total(say: Any) -> None:
    zero, five, seven = ({"prompt_tokens": 4 if n else 0, "completion_tokens": n} for n in (0, 5, 7))
    result = read(
        (10.4, say.delta(usage=zero, role="assistant") + say.delta(content="A")),
        (10.5, say.delta(usage=five, content="B")),
        (10.6, say.delta("stop", usage=seven) + say.DONE),
    )
    assert (result.prompt_tokens, result.completion_tokens) == (4, 7)


@pytest.mark.parametrize("usage", [None, {"prompt_tokens": 0, "completion_tokens": 0}])
def test_without_usage_the_tokens_are_unknown_and_so_is_the_pace(say: Any, usage: dict[str, int] | None) -> None:
    result = read((10.4, say.delta(content="A")), (10.5, say.delta("stop", usage=usage, content="B") + say.DONE))
    assert result.ok
    assert result.warnings == ["usage_missing"]
    assert (result.completion_tokens, result.tokens_from, result.tps, result.tpot_s) == (None, None, None, None)
    assert result.estimated_tokens == 2


def test_one_token_has_no_pace(say: Any) -> None:
    result = read((10.4, say.delta("stop", content="A") + say.usage(1) + say.DONE))
    assert result.ok
    assert (result.tps, result.tpot_s, result.warnings) == (None, None, [])


def test_an_answer_in_one_piece_has_no_pace_and_says_so(say: Any) -> None:
    result = read((10.4, say.delta(content="A") + say.delta("stop", content="B") + say.usage(2) + say.DONE))
    assert (result.tps, result.tpot_s, result.warnings) == (None, None, ["came_in_one_piece"])


def test_tool_calls_are_joined_by_index(say: Any) -> None:
    def piece(index: int, arguments: str, **more: Any) -> dict[str, Any]:
        name = {"name": more.pop("name")} if "name" in more else {}
        return {"index": index, "function": {"arguments": arguments, **name}, **more}

    result = read(
        (10.5, say.delta(tool_calls=[piece(0, "", id="c1", type="function", name="f")])),
        (10.6, say.delta(tool_calls=[piece(0, '{"a":')]) + say.delta(tool_calls=[piece(1, "{}", id="c2", name="g")])),
        (10.7, say.delta(tool_calls=[piece(0, "1}")])),
        (10.8, say.delta("tool_calls") + say.usage(3) + say.DONE),
    )
    assert result.ok
    assert result.tool_calls == [{"id": "c1", "name": "f", "arguments": '{"a":1}'}, {"id": "c2", "name": "g", "arguments": "{}"}]
    assert (result.ttft_s, result.ttfa_s, result.e2e_s, result.tpot_s) == pytest.approx((0.5, 0.5, 0.7, 0.1))


def test_tool_calls_without_an_index_are_told_apart_by_id(say: Any) -> None:
    calls = [
        {"id": "a", "function": {"name": "f", "arguments": "{"}},
        {"function": {"arguments": "}"}},
        {"id": "b", "function": {"name": "g"}},
    ]
    result = read((10.5, b"".join(say.delta(tool_calls=[call]) for call in calls) + say.DONE))
    assert [(call["name"], call["arguments"]) for call in result.tool_calls] == [("f", "{}"), ("g", "")]


def test_the_completions_route_and_token_ids(say: Any) -> None:
    result = read(
        (10.2, say.data({"choices": [{"index": 0, "text": "", "token_ids": [5, 6]}]})),
        (10.4, say.data({"choices": [{"index": 0, "text": "ab", "finish_reason": "length"}]}) + say.DONE),
    )
    assert result.ok
    assert (result.text, result.ttft_s, result.estimated_tokens) == ("ab", pytest.approx(0.2), 3)


@pytest.mark.parametrize(
    ("tail", "warning"),
    [("finish", "done_missing"), ("done", "finish_reason_missing")],
)
def test_one_sign_of_the_end_suffices(say: Any, tail: str, warning: str) -> None:
    last = say.delta("stop") + say.usage(2) if tail == "finish" else say.usage(2) + say.DONE
    result = read((10.4, say.delta(content="A")), (10.5, say.delta(content="B") + last))
    assert result.ok
    assert result.warnings == [warning]


ENGINE_GONE = "EngineCore encountered an issue. See stack trace (above) for the root cause."
TOO_LONG = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."


@pytest.mark.parametrize(
    ("error", "reason", "code"),
    [
        ({"error": {"message": ENGINE_GONE, "code": 500}}, Reason.ENGINE_DEAD, 500),
        ({"error": {"message": TOO_LONG, "type": "BadRequestError", "code": "400"}}, Reason.CONTEXT_OVERFLOW, 400),
        ({"error": {"message": "no", "code": "context_length_exceeded"}}, Reason.CONTEXT_OVERFLOW, None),
        ({"error": {"message": "CUDA out of memory. Tried to allocate 2 GiB", "code": 500}}, Reason.CUDA_OUT_OF_MEMORY, 500),
        ({"object": "error", "message": "NaN happened", "code": 500}, Reason.ABORTED_BY_SERVER, 500),
        ({"error": "something went wrong"}, Reason.ABORTED_BY_SERVER, None),
        ({"error": {"message": "bad grammar", "code": 400}}, Reason.REQUEST_REFUSED, 400),
    ],
)
@pytest.mark.parametrize("tokens", [0, 2])
def test_an_error_object_fails_the_request_wherever_it_stands(say: Any, error: Any, reason: Reason, code: int | None, tokens: int) -> None:
    before = b"".join(say.delta(content="x") for _ in range(tokens))
    result = read((10.4, before), (10.5, say.data(error) + say.usage(0) + say.DONE))
    assert not result.ok
    assert (result.reason, result.error_code, result.text) == (reason, code, "x" * tokens)
    assert result.tps is None


def test_a_null_error_is_none(say: Any) -> None:
    assert read((10.5, say.data({"error": None, "choices": [{"delta": {"content": "a"}}]}) + say.DONE)).ok


@pytest.mark.parametrize("finish", ["abort", "error", {"type": "abort", "message": "shutdown"}])
def test_a_finish_reason_of_giving_up(say: Any, finish: Any) -> None:
    result = read((10.4, say.delta(content="a")), (10.5, say.delta(finish) + say.usage(5) + say.DONE))
    assert (result.ok, result.reason, result.completion_tokens, result.text) == (False, Reason.ABORTED_BY_SERVER, 5, "a")


def test_no_sign_of_the_end(say: Any) -> None:
    result = read((10.4, say.delta(content="a")), (10.5, say.usage(1)))
    assert (result.ok, result.reason) == (False, Reason.TRUNCATED_STREAM)


def test_a_cut_event_adds_nothing(say: Any) -> None:
    result = read((10.4, say.delta(content="a")), (10.5, say.delta(content="b")[:-9]), end=End.LOST)
    assert (result.reason, result.text, result.warnings.count("unreadable_event")) == (Reason.CONNECTION_LOST, "a", 0)


def test_a_connection_that_breaks_behind_the_end_does_not_matter(say: Any) -> None:
    result = read((10.4, say.delta("stop", content="a") + say.usage(1) + say.DONE), end=End.LOST)
    assert result.ok
    assert result.warnings == ["closed_badly_after_done"]


def test_no_output(say: Any) -> None:
    result = read((10.4, say.delta(role="assistant", content="") + say.delta("stop") + say.usage(0) + say.DONE))
    assert (result.ok, result.reason, result.ttft_s) == (False, Reason.EMPTY_OUTPUT, None)


def test_an_answer_that_was_not_streamed() -> None:
    result = read((10.4, b'{"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}'))
    assert (result.ok, result.reason) == (False, Reason.BENCH_ERROR)
    result = read((10.4, b'{"error": {"message": "EngineCore encountered an issue"}}'))
    assert result.reason == Reason.ENGINE_DEAD


@pytest.mark.parametrize(
    "junk", [b"data: {\n\n", b"data: 7\n\n", b"data: []\n\n", b'data: {"choices": null}\n\n', b'data: {"choices": [3, {"delta": 4}]}\n\n']
)
def test_junk_between_is_survived(say: Any, junk: bytes) -> None:
    result = read((10.4, say.delta(content="a") + junk), (10.5, say.delta("stop", content="b") + say.usage(2) + say.DONE))
    assert result.ok
    assert result.text == "ab"
    assert result.warnings == (["unreadable_event"] if b"choices" not in junk else [])


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (401, b'{"error": "Unauthorized"}', Reason.AUTH_FAILED),
        (403, b"<html>no</html>", Reason.AUTH_FAILED),
        (404, b'{"object":"error","message":"The model `x` does not exist.","code":404}', Reason.MODEL_NOT_FOUND),
        (404, b'{"detail":"Not Found"}', Reason.REQUEST_REFUSED),
        (400, f'{{"error":{{"message":"{TOO_LONG}","code":400}}}}'.encode(), Reason.CONTEXT_OVERFLOW),
        (400, b'{"error":{"message":"top_p must be in (0, 1]","code":400}}', Reason.REQUEST_REFUSED),
        (302, b"", Reason.REQUEST_REFUSED),
        (429, b"slow down", Reason.REQUEST_REFUSED),
        (500, f'{{"error":{{"message":"{ENGINE_GONE}"}}}}'.encode(), Reason.ENGINE_DEAD),
        (500, b"Internal Server Error", Reason.ABORTED_BY_SERVER),
        (503, b'{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}', Reason.ENGINE_UNRESPONSIVE),
        (504, b"", Reason.REQUEST_TIMEOUT),
    ],
)
def test_statuses(status: int, body: bytes, reason: Reason) -> None:
    result = read((10.4, body), status=status)
    assert (result.ok, result.reason, result.http_status) == (False, reason, status)
    assert result.error_message
    assert result.warnings == []


def with_ids(ids: list[int], prompt: list[int] | None = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "token_ids": ids}
    return {"choices": [choice]} if prompt is None else {"prompt_token_ids": prompt, "choices": [choice]}


def test_token_ids_are_kept_and_counted_against_usage(say: Any) -> None:
    chunks = (
        say.data(with_ids([], [1, 2, 3], role="assistant", content="")),
        say.data(with_ids([7, 8], content="ab")),
        say.data(with_ids([9], content="")),
    )
    result = read(
        *[(10.1 + 0.1 * n, chunk) for n, chunk in enumerate(chunks)], (10.5, say.delta("stop") + say.usage(3, prompt=3) + say.DONE)
    )
    assert (result.prompt_token_ids, result.output_token_ids, result.warnings) == ([1, 2, 3], [7, 8, 9], [])
    # An id without text is a token all the same: of a character that is not whole yet, or one that ends the answer.
    assert (result.ttft_s, result.e2e_s) == pytest.approx((0.2, 0.3))
    short = read((10.2, say.data(with_ids([7], content="a"))), (10.3, say.delta("stop", content="b") + say.usage(2) + say.DONE))
    assert short.warnings == ["token_ids_incomplete"]
    cut = read(
        (10.2, say.data(with_ids([7], [1, 2], content="a"))),
        (10.3, say.data(with_ids([8], content="b")) + say.delta("stop") + say.usage(2) + say.DONE),
    )
    assert cut.warnings == ["prompt_token_ids_incomplete"]


def test_without_token_ids_there_are_none(say: Any) -> None:
    result = read((10.2, say.delta(content="a")), (10.3, say.delta("stop", content="b") + say.usage(2) + say.DONE))
    assert (result.prompt_token_ids, result.output_token_ids) == (None, None)


def test_the_completions_route_has_the_prompts_ids_in_the_choice(say: Any) -> None:
    first = say.data({"choices": [{"index": 0, "text": "a", "prompt_token_ids": [4, 5], "token_ids": [6]}]})
    result = read(
        (10.2, first), (10.3, say.data({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}) + say.usage(1) + say.DONE)
    )
    assert (result.prompt_token_ids, result.output_token_ids) == ([4, 5], [6])


def test_what_the_engine_says_of_speculation_with_the_answer(say: Any) -> None:
    timings = {"predicted_n": 5, "draft_n": 6, "draft_n_accepted": 2, "cache_n": 7}
    last = say.data({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5}, "timings": timings})
    result = read((10.2, say.delta(content="a")), (10.3, say.delta("stop", content="b") + last + say.DONE))
    assert result.cached_tokens == 7
    assert result.speculation is not None
    assert (result.speculation.source, result.speculation.accepted_tokens) == ("usage", 2)
    assert read((10.2, say.delta("stop", content="a") + say.usage(1) + say.DONE)).speculation is None
