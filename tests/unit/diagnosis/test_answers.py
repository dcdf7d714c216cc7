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
