"""Ways of servers and of what stands before them: proxies, gateways, other engines than the usual two."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from service.domain.measurement import RequestResult
from service.domain.reasons import Reason
from service.domain.spec import Bench, Prompt
from workers.bench.run import run_phase_blocking
from workers.bench.stream_reading import End, StreamReading
from workers.bench.target import Target

JSON = "application/json"


def read(*parts: bytes, status: int = 200, kind: str = "text/event-stream", end: End = End.COMPLETE, **headers: str) -> RequestResult:
    """What parts of a body mean that came a second apart, the first of them a second after the request."""
    reading = StreamReading()
    reading.begin(status, {"content-type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}})
    for number, part in enumerate(parts):
        reading.feed(part, 11.0 + number)
    reading.finish()
    return reading.result("p", 0, 10.0, end)


@pytest.fixture
def parts(say: Any) -> list[bytes]:
    """A usual answer."""
    return [say.delta(role="assistant", content=""), say.delta(content="a"), say.delta("stop", content="b") + say.usage(5) + say.DONE]


@pytest.mark.parametrize("status", [201, 206])
def test_any_success_is_one(parts: list[bytes], status: int) -> None:
    found = read(*parts, status=status)
    assert (found.ok, found.http_status, found.text, found.warnings) == (True, status, "ab", [])


@pytest.mark.parametrize(("coding", "wbits"), [("gzip", 31), ("deflate", 15)])
def test_a_compressed_stream_is_read_as_it_comes(parts: list[bytes], coding: str, wbits: int) -> None:
    packer = zlib.compressobj(wbits=wbits)
    packed = [packer.compress(part) + packer.flush(zlib.Z_SYNC_FLUSH) for part in parts]
    found = read(*packed, content_encoding=coding)
    assert (found.ok, found.text, found.completion_tokens, found.warnings) == (True, "ab", 5, ["compressed"])
    assert (found.ttft_s, found.e2e_s) == (2.0, 3.0)


@pytest.mark.parametrize(
    ("coding", "body"), [("br", b"\x8b\x02"), ("gzip", b"no such thing"), ("gzip", gzip.compress(b"x", mtime=0)[:-9] + b"?" * 20)]
)
def test_a_coding_that_cannot_be_read_is_named(coding: str, body: bytes) -> None:
    found = read(body, body, content_encoding=coding)
    assert (found.ok, found.reason) == (False, Reason.BENCH_ERROR)
    assert coding in str(found.error_message)


def test_headers_reach_the_reading(serve: Callable[..., Any], say: Any, parts: list[bytes]) -> None:
    hint = b"HTTP/1.1 103 Early Hints\r\ncontent-encoding: br\r\n\r\n"
    packed = gzip.compress(b"".join(parts))
    server = serve(lambda _: [hint, say.head("200 OK", f"content-encoding: gzip\r\ncontent-length: {len(packed)}") + packed])
    bench = Bench(prompts=[Prompt(id="p", messages=[{"role": "user", "content": "x"}])], repeat=1)
    (found,) = run_phase_blocking(Target(server.url, "m"), bench, 1).result.requests
    assert (found.ok, found.text, found.warnings) == (True, "ab", ["compressed", "came_in_one_piece"])


def test_a_redirect_says_where_to() -> None:
    found = read(b"", status=307, location="https://other/v1/chat/completions")
    assert found.reason == Reason.REQUEST_REFUSED
    assert "https://other/v1" in str(found.error_message)


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        (
            "text/html; charset=utf-8",
            b"<!doctype html><html><head><title>Sign in</title></head><body></body></html>",
            "text/html): Sign in",
        ),
        ("text/plain", b"Internal error", "Internal error"),
        ("application/x-ndjson", b'{"message":{"content":"a"}}\n{"done":true}\n', "x-ndjson"),
        ("text/event-stream", b'{"models": []}', "no stream of events"),
    ],
)
def test_what_is_no_stream_of_events_is_named(kind: str, body: bytes, words: str) -> None:
    found = read(body, kind=kind)
    assert (found.ok, found.reason) == (False, Reason.BENCH_ERROR)
    assert words in str(found.error_message)


def test_an_empty_body_is_cut_off() -> None:
    assert read(b"", kind=JSON).reason == Reason.TRUNCATED_STREAM


def test_an_answer_in_one_object_is_kept_though_it_does_not_count() -> None:
    message = {"role": "assistant", "content": "ab", "reasoning_content": "hm"}
    whole = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {"prompt_tokens": 9, "completion_tokens": 5}}
    found = read(json.dumps(whole).encode(), kind=JSON)
    assert (found.reason, found.text, found.reasoning_text, found.finish_reason) == (Reason.BENCH_ERROR, "ab", "hm", "stop")
    assert (found.completion_tokens, found.ttft_s, found.e2e_s) == (5, None, None)


def test_a_whole_message_in_an_event_is_an_answer_but_no_second_one(say: Any) -> None:
    whole = say.data({"choices": [{"index": 0, "message": {"content": "ab"}, "finish_reason": "stop"}]})
    alone = read(whole + say.usage(5) + say.DONE)
    assert (alone.ok, alone.text, alone.tps, alone.warnings) == (True, "ab", None, ["came_in_one_piece"])
    assert read(say.delta(content="a"), say.delta(content="b"), whole + say.usage(5) + say.DONE).text == "ab"


def test_events_without_a_blank_line_between_are_told_apart(parts: list[bytes]) -> None:
    found = read(b"".join(parts).replace(b"\n\n", b"\n"))
    assert (found.ok, found.text, found.completion_tokens) == (True, "ab", 5)
    assert found.warnings == ["events_not_separated", "came_in_one_piece"]


def test_empty_data_is_a_sign_of_life_and_done_may_stand_in_quotes(say: Any) -> None:
    found = read(b"data:\n\n", say.delta(content="a"), b"data: \n\n", say.delta(content="b") + say.usage(2) + b'data: "[DONE]"\n\n')
    assert (found.ok, found.text, found.warnings) == (True, "ab", ["finish_reason_missing"])


def test_what_comes_behind_done_does_not_count(say: Any, parts: list[bytes]) -> None:
    found = read(*parts, say.delta(content="ghost") + say.usage(50))
    assert (found.ok, found.text, found.completion_tokens, found.e2e_s) == (True, "ab", 5, 3.0)
    assert found.warnings == ["data_after_done"]
    late = read(say.delta(content="a"), say.delta("stop", content="b") + say.DONE + say.usage(5))
    assert (late.completion_tokens, late.warnings) == (5, [])


def test_json_too_deep_to_read_is_junk(parts: list[bytes]) -> None:
    found = read(parts[0], b"data: " + b"[" * 100_000 + b"\n\n", *parts[1:])
    assert (found.ok, found.text, found.warnings) == (True, "ab", ["unreadable_event"])
    assert read(b"[" * 100_000, status=500).reason == Reason.ABORTED_BY_SERVER


@pytest.mark.parametrize(
    "usage",
    [
        {},
        {"prompt_tokens": 0, "completion_tokens": 0},
        {"prompt_tokens": None, "completion_tokens": None},
        {"prompt_tokens": 9, "completion_tokens": -1},
    ],
)
def test_usage_that_was_left_empty_takes_nothing_away(say: Any, usage: dict[str, Any]) -> None:
    found = read(
        say.delta(content="a"), say.delta("stop", content="b") + say.usage(5) + say.data({"choices": [], "usage": usage}) + say.DONE
    )
    assert (found.prompt_tokens, found.completion_tokens) == (9, 5)


def test_usage_by_its_other_names(say: Any) -> None:
    last = say.data({"choices": [], "usage": {"input_tokens": 9, "output_tokens": 5}})
    found = read(say.delta(content="a"), say.delta("stop", content="b") + last + say.DONE)
    assert (found.prompt_tokens, found.completion_tokens) == (9, 5)


def test_usage_far_below_the_chunks_is_doubted(say: Any) -> None:
    one = {"prompt_tokens": 9, "completion_tokens": 1}
    found = read(*[say.delta(usage=one, content="a")] * 9, say.delta("stop", usage=one) + say.DONE)
    assert (found.completion_tokens, found.warnings) == (1, ["usage_below_chunks"])
    assert read(say.delta(content="a"), say.delta("stop", content="b") + say.usage(1) + say.DONE).warnings == []


def choice(index: int, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"index": index, "delta": delta, "finish_reason": finish, "token_ids": [index]}


def test_of_several_choices_the_words_of_one_and_no_pace(say: Any) -> None:
    calls = [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]
    found = read(
        say.data({"choices": [choice(0, content="a"), choice(1, content="x", tool_calls=calls)]}),
        say.data({"choices": [choice(0, "stop", content="b")]}) + say.data({"choices": [choice(1, "length", content="y")]}),
        say.usage(8) + say.DONE,
    )
    assert (found.ok, found.text, found.tool_calls, found.output_token_ids, found.finish_reason) == (True, "ab", [], [0, 0], "stop")
    assert (found.completion_tokens, found.tps, found.tpot_s, found.itl_ms) == (8, None, None, [])
    assert found.warnings == ["several_choices"]
    given_up = read(say.data({"choices": [choice(0, "stop", content="a"), choice(1, "abort", content="x")]}) + say.DONE)
    assert given_up.reason == Reason.ABORTED_BY_SERVER


@pytest.mark.parametrize("finish", ["length", "eos_token", "stop_sequence", "repetition", "content_filter", "<|eot_id|>", "STOP"])
def test_finish_reasons_that_end_an_answer(say: Any, finish: str) -> None:
    found = read(say.delta(content="a"), say.delta(finish, content="b") + say.usage(5) + say.DONE)
    assert (found.ok, found.finish_reason) == (True, finish)


@pytest.mark.parametrize(
    "finish", ["ABORT", "canceled", "network_error", "timeout", "insufficient_system_resource", "server_error", "failed", "interrupted"]
)
def test_finish_reasons_that_give_up(say: Any, finish: str) -> None:
    found = read(say.delta(content="a"), say.delta(finish, content="b") + say.usage(5) + say.DONE)
    assert (found.ok, found.reason, found.finish_reason) == (False, Reason.ABORTED_BY_SERVER, finish)


@pytest.mark.parametrize("finish", ["null", "None", ""])
def test_a_finish_reason_that_means_none(say: Any, finish: str) -> None:
    found = read(say.delta(content="a"), say.delta(finish, content="b") + say.usage(2))
    assert (found.reason, found.finish_reason) == (Reason.TRUNCATED_STREAM, None)


def test_what_a_server_says_of_giving_up(say: Any) -> None:
    too_long = {"type": "abort", "message": "The input (9000 tokens) is longer than the model's context length", "status_code": 400}
    found = read(say.delta(too_long) + say.DONE)
    assert (found.reason, found.error_code, found.finish_reason) == (Reason.CONTEXT_OVERFLOW, 400, "abort")
    inside = {"index": 0, "delta": {}, "finish_reason": "error", "error": {"code": 502, "message": "Provider disconnected"}}
    found = read(say.delta(content="a"), say.data({"choices": [inside]}) + say.DONE)
    assert (found.reason, found.error_code, found.error_message) == (Reason.ABORTED_BY_SERVER, 502, "Provider disconnected")


def test_reasoning_without_an_answer_is_said(say: Any) -> None:
    found = read(say.delta(reasoning="a"), say.delta("length", reasoning="b") + say.usage(2) + say.DONE)
    assert (found.ok, found.warnings) == (True, ["no_answer"])


def test_calls_that_all_have_the_same_index(say: Any) -> None:
    def piece(index: int = 0, **more: Any) -> bytes:
        identity = {"id": more.pop("id")} if "id" in more else {}
        return bytes(say.delta(tool_calls=[{"index": index, "function": more, **identity}]))

    found = read(
        piece(id="a", name="f", arguments='{"x": 1}'),
        piece(id="b", name="g", arguments="") + piece(arguments='{"y":') + piece(arguments=" 2}"),
        say.delta("tool_calls") + say.usage(9) + say.DONE,
    )
    assert [(call["id"], call["name"], call["arguments"]) for call in found.tool_calls] == [("a", "f", '{"x": 1}'), ("b", "g", '{"y": 2}')]
    # An id made up for each piece is no other call.
    one = read(piece(id="a", name="f") + piece(id="b", arguments='{"x":') + piece(id="c", arguments="1}") + say.DONE)
    assert [(call["id"], call["arguments"]) for call in one.tool_calls] == [("a", '{"x":1}')]
    whole = read(piece(id="a", name="f", arguments={"x": 1}) + say.DONE)
    assert whole.tool_calls[0]["arguments"] == '{"x": 1}'


TOO_LONG = "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 2000 `inputs` tokens"
MEMORY = "Request failed during generation: Server error: CUDA out of memory."


@pytest.mark.parametrize(
    ("error", "reason", "code"),
    [
        ({"error": TOO_LONG, "error_type": "validation"}, Reason.CONTEXT_OVERFLOW, None),
        ({"error": MEMORY, "error_type": "generation"}, Reason.CUDA_OUT_OF_MEMORY, None),
        ({"error": "Model is overloaded", "error_type": "overloaded"}, Reason.REQUEST_REFUSED, None),
        ({"detail": "Internal failure"}, Reason.ABORTED_BY_SERVER, None),
        ({"code": 500, "message": "inference failed"}, Reason.ABORTED_BY_SERVER, 500),
        ({"text": "NETWORK ERROR", "error_code": 50004}, Reason.ABORTED_BY_SERVER, 50004),
        ({"error": {"message": "upstream timed out", "code": "504"}}, Reason.REQUEST_TIMEOUT, 504),
        ({"error": {"message": "bad", "code": None, "status_code": 503}}, Reason.ABORTED_BY_SERVER, 503),
        ({"error": {"message": "no", "type": "invalid_request_error", "code": "model_not_found"}}, Reason.MODEL_NOT_FOUND, None),
        ({"error": {"message": "bad key", "code": 401}}, Reason.AUTH_FAILED, 401),
        ({"error": {"message": "x"}, "code": 500}, Reason.ABORTED_BY_SERVER, 500),
        ({"error": {"message": "x", "code": float("nan")}}, Reason.ABORTED_BY_SERVER, None),
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
def test_errors_by_other_names(say: Any, error: dict[str, Any], reason: Reason, code: int | None, streamed: bool) -> None:
    found = read(say.delta(content="a"), say.data(error) + say.DONE) if streamed else read(json.dumps(error).encode(), kind=JSON)
    assert (found.ok, found.reason, found.error_code) == (False, reason, code)
    assert found.error_message


@pytest.mark.parametrize("chunk", [{"type": "ping", "message": "working"}, {"code": 0, "message": "ok"}, {"code": 200, "msg": "queued"}])
def test_other_objects_between_are_no_errors(say: Any, parts: list[bytes], chunk: dict[str, Any]) -> None:
    assert read(parts[0], say.data(chunk), *parts[1:]).ok


GATEWAY = b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<h1>502 Bad Gateway</h1>\r\n<hr>nginx</body>\r\n</html>"


@pytest.mark.parametrize(
    ("status", "body", "reason", "words"),
    [
        (408, b"", Reason.REQUEST_TIMEOUT, "408"),
        (424, MEMORY.encode(), Reason.CUDA_OUT_OF_MEMORY, "memory"),
        (424, b'{"error":"Request failed","error_type":"generation"}', Reason.ABORTED_BY_SERVER, "failed"),
        (502, GATEWAY, Reason.ENGINE_UNRESPONSIVE, "502 Bad Gateway nginx"),
        (521, b"", Reason.ENGINE_UNRESPONSIVE, "521"),
        (524, b"", Reason.REQUEST_TIMEOUT, "524"),
        (400, b'{"error":{"message":"Invalid model name passed in model=x","code":"400"}}', Reason.MODEL_NOT_FOUND, "model=x"),
        (400, b'data: {"error":{"message":"maximum context length is 9","code":400}}\n\ndata: [DONE]\n\n', Reason.CONTEXT_OVERFLOW, "is 9"),
    ],
)
def test_statuses_of_what_stands_before_an_engine(status: int, body: bytes, reason: Reason, words: str) -> None:
    found = read(body, status=status, kind="text/html")
    assert (found.reason, found.http_status) == (reason, status)
    assert words in str(found.error_message)
