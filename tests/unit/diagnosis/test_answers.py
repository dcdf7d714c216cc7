"""Requests of a run and raw answers of a server, judged by the load client's own words."""

from __future__ import annotations

import pytest

from workers.diagnosis.diagnose import diagnose_paste

CONTEXT = '{"error":{"message":"This model\'s maximum context length is 4096 tokens","type":"BadRequestError","code":400}}'
DEAD = '{"error":{"message":"EngineCore encountered an issue.","type":"InternalServerError","code":500}}'
LOADING = '{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}'


@pytest.mark.parametrize(
    ("paste", "reason"),
    [
        (f"req 1 -> 200, complete\nreq 2 -> 400 {CONTEXT}\n", "context_overflow"),
        (f"req 1 -> 200, complete\nreq 2 -> 500 {DEAD}\n", "engine_dead"),
        (f"HTTP/1.1 400 Bad Request\ncontent-type: application/json\n\n{CONTEXT}\n", "context_overflow"),
        (f"HTTP/1.1 503 Service Unavailable\nContent-Type: application/json\n\n{LOADING}\n", "engine_unresponsive"),
    ],
)
def test_why_a_request_failed(paste: str, reason: str) -> None:
    found = diagnose_paste(paste)
    assert found["reason"] == reason
    assert found["facts"]["run"] == "invalid"
    assert found["facts"]["requests_failed"] == 1
    assert "gpu_freed" not in found


def test_a_server_that_was_not_restarted_is_said_not_to_be() -> None:
    paste = f"# NRestarts before the run: 2\nreq 1 -> 400 {CONTEXT}\n# NRestarts after the run: 2\n"
    assert diagnose_paste(paste)["facts"]["restarts"] == 0


@pytest.mark.parametrize(
    ("answer", "reason", "code"),
    [
        (f"200 {DEAD}", "engine_dead", 500),
        (f"200, data: {DEAD} and then [DONE]", "engine_dead", 500),
        ("200, finish_reason=abort, usage and [DONE]", "aborted_by_server", None),
        ("200, stream cut (incomplete chunked read)", "connection_lost", None),
        ("connection reset by peer", "connection_lost", None),
        ("200, no [DONE] and no finish_reason", "truncated_stream", None),
        ("200, [DONE] after 0 tokens", "empty_output", None),
        ("502 <html><title>502 Bad Gateway</title></html>", "engine_unresponsive", None),
    ],
)
def test_a_status_of_success_is_not_enough(answer: str, reason: str, code: int | None) -> None:
    found = diagnose_paste(f"req 1 -> 200, complete, 10 tokens\nreq 2 -> {answer}\n")
    assert (found["reason"], found["facts"]["error_code"], found["facts"]["first_failure"]) == (reason, code, "req 2")
    assert (found["facts"]["requests_ok"], found["facts"]["requests_failed"]) == (1, 1)


@pytest.mark.parametrize(
    ("exchange", "reason", "status"),
    [
        (f"< HTTP/1.1 400 Bad Request\n< content-type: application/json\n<\n{CONTEXT}\n", "context_overflow", 400),
        ("HTTP/1.1 502 Bad Gateway\nServer: nginx\n\n<html><title>502 Bad Gateway</title></html>\n", "engine_unresponsive", 502),
    ],
)
def test_one_exchange(exchange: str, reason: str, status: int) -> None:
    found = diagnose_paste(exchange)
    assert (found["reason"], found["facts"]["request"], found["facts"]["http_status"]) == (reason, "failed", status)


@pytest.mark.parametrize(
    ("answer", "state", "reason"),
    [
        (f"200 {DEAD}", "failed", "engine_dead"),
        (f"400 {CONTEXT}", "not_ready", "context_overflow"),
        ('404 {"object":"error","message":"The model `x` does not exist.","code":404}', "not_ready", "model_not_found"),
    ],
)
def test_a_probe_that_asked_for_a_token(answer: str, state: str, reason: str) -> None:
    found = diagnose_paste(f"POST /v1/chat/completions -> {answer}\n")
    assert (found["state"], found["reason"]) == (state, reason)
