"""The fault matrix, over real loopback HTTP."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from service.domain.measurement import RequestResult
from service.domain.reasons import Reason
from workers.bench.run import run_phase_blocking
from workers.bench.target import Target

READ_AT_ONCE = {"came_in_one_piece"}
"""What is said, rightly, where a busy machine reads both tokens of a short answer in one go."""


@pytest.fixture
def once(serve: Any, target: Any, asked: Any) -> Any:
    """Measure one request against one scripted response."""

    def measure(steps: list[Any], **more: Any) -> RequestResult:
        run = run_phase_blocking(target(serve(lambda _: steps), **more), asked(), 1)
        result: RequestResult = run.result.requests[0]
        assert run.result.summary.valid is result.ok
        if not result.ok:
            assert run.result.summary.ttft_ms.mean is None
            assert run.result.summary.output_tokens is None
        return result

    return measure


def test_a_good_answer(once: Any, say: Any) -> None:
    result = once(
        say.stream(
            say.delta(role="assistant", content=""),
            0.1,
            say.delta(content="a"),
            0.1,
            say.delta("stop", content="b"),
            say.usage(2),
            say.DONE,
        )
    )
    assert result.ok
    assert result.warnings == []
    assert result.ttft_s == pytest.approx(0.1, abs=0.05)
    assert result.tpot_s == pytest.approx(0.1, abs=0.05)
    assert result.text == "ab"


ERROR = {"error": {"message": "EngineCore encountered an issue.", "code": 500}}


def test_an_error_at_the_start(once: Any, say: Any) -> None:
    result = once(say.stream(say.data(ERROR), say.DONE))
    assert (result.reason, result.error_code, result.http_status, result.text) == (Reason.ENGINE_DEAD, 500, 200, "")


def test_an_error_in_the_middle(once: Any, say: Any) -> None:
    result = once(say.stream(say.delta(content="Hel"), say.delta(content="lo"), say.data(ERROR), say.DONE))
    assert (result.reason, result.error_code, result.text, result.tps) == (Reason.ENGINE_DEAD, 500, "Hello", None)


def test_an_abort(once: Any, say: Any) -> None:
    result = once(say.stream(say.delta(content="a"), say.delta("abort", content=""), say.usage(5), say.DONE))
    assert (result.reason, result.text) == (Reason.ABORTED_BY_SERVER, "a")


def test_a_clean_close_without_an_end(once: Any, say: Any) -> None:
    assert once(say.stream(say.delta(content="a"))).reason == Reason.TRUNCATED_STREAM


def test_a_close_without_the_last_chunk(once: Any, say: Any) -> None:
    result = once(say.stream(say.delta(content="a"), end=False))
    assert (result.reason, result.text, result.finish_reason, result.completion_tokens) == (Reason.CONNECTION_LOST, "a", None, None)


@pytest.mark.parametrize("framing", ["transfer-encoding: chunked", "content-length: 9999", ""])
def test_a_reset_in_the_middle(once: Any, say: Any, framing: str) -> None:
    part = say.delta(content="a")
    result = once([say.head(framing=framing), say.piece(part) if "chunked" in framing else part, 0.05, say.RST])
    assert (result.reason, result.text) == (Reason.CONNECTION_LOST, "a")


def test_a_reset_before_the_response(once: Any, say: Any) -> None:
    result = once([say.RST])
    assert (result.reason, result.http_status) == (Reason.CONNECTION_LOST, None)


@pytest.mark.parametrize("framing", ["content-length: {}", ""])
def test_bodies_that_are_not_chunked(once: Any, say: Any, framing: str) -> None:
    body = say.delta(content="a") + say.delta("stop", content="b") + say.usage(2) + say.DONE
    assert once([say.head(framing=framing.format(len(body))), body]).ok


def test_lines_end_in_cr_alone_and_the_last_event_has_no_blank_line(once: Any, say: Any) -> None:
    parts = [part.replace(b"\n", b"\r") for part in (say.delta(content="a"), say.delta("stop", content="b"), say.usage(2))]
    result = once(say.stream(*parts, b"data: [DONE]"))
    assert result.ok
    assert set(result.warnings) <= READ_AT_ONCE
    assert (result.text, result.completion_tokens) == ("ab", 2)


@pytest.mark.parametrize("place", range(1, len("data: д🙂".encode())))
def test_reads_split_anywhere(once: Any, say: Any, place: int) -> None:
    whole = say.delta("stop", content="д🙂я")
    cut = whole.index("д".encode()) - len(b"data: ") + place
    result = once(say.stream(whole[:cut], whole[cut:], say.usage(3), say.DONE))
    assert result.ok
    assert result.text == "д🙂я"


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        ("503 Service Unavailable", '{"error":{"code":503,"message":"Loading model"}}', Reason.ENGINE_UNRESPONSIVE),
        ("400 Bad Request", '{"message":"maximum context length is 10"}', Reason.CONTEXT_OVERFLOW),
        ("400 Bad Request", '{"message":"unknown key"}', Reason.REQUEST_REFUSED),
        ("401 Unauthorized", "", Reason.AUTH_FAILED),
    ],
)
def test_refusals(once: Any, say: Any, status: str, body: str, reason: Reason) -> None:
    result = once(say.refusal(status, body))
    assert (result.reason, result.http_status) == (reason, int(status[:3]))


def test_a_stream_that_stalls(once: Any, say: Any) -> None:
    result = once(say.stream(say.delta(content="a"), say.HANG), timeout_s=0.2)
    assert (result.reason, result.text) == (Reason.REQUEST_TIMEOUT, "a")


def test_a_server_that_never_answers(once: Any, say: Any) -> None:
    assert once([say.HANG], timeout_s=0.2).reason == Reason.REQUEST_TIMEOUT


def test_a_connection_kept_open_behind_done_is_not_waited_for(once: Any, say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.bench.http_stream._AFTER_DONE_S", 0.05)
    result = once(say.stream(say.delta("stop", content="a"), say.usage(1), say.DONE, say.HANG), timeout_s=5.0)
    assert result.ok


def test_what_is_no_http(once: Any) -> None:
    result = once([b"SSH-2.0-OpenSSH_9.6\r\n"])
    assert (result.reason, result.http_status) == (Reason.BENCH_ERROR, None)


def test_a_continue_before_the_response(once: Any, say: Any) -> None:
    assert once([b"HTTP/1.1 100 Continue\r\n\r\n", *say.good("ab")]).ok


def test_nobody_listens(asked: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    result = run_phase_blocking(Target(url, "m"), asked(), 1).result.requests[0]
    assert (result.ok, result.reason) == (False, Reason.CONNECTION_REFUSED)


def test_a_key_that_the_server_repeats_is_blotted_out(once: Any, say: Any) -> None:
    steps = say.refusal("401 Unauthorized", '{"error":{"message":"Incorrect API key provided: sk-very-secret"}}')
    result = once(steps, headers={"Authorization": "Bearer sk-very-secret"})
    assert result.error_message == "Incorrect API key provided: ***"
