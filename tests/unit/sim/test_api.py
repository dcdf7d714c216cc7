"""What a simulated engine answers, and how it breaks on demand."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.unit.sim.simulated import NGRAM, SimServer, until
from workers.sim.acceptance import Verified
from workers.sim.metrics import IntervalStats, Metrics

Serve = Callable[..., SimServer]
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8}


def test_the_plain_routes(serve: Serve) -> None:
    server = serve("--max-model-len", "4k").ready()
    assert json.loads(server.request("GET", "/version")[1])["version"] == "0.32.0"
    (card,) = json.loads(server.request("GET", "/v1/models")[1])["data"]
    assert (card["id"], card["root"], card["max_model_len"]) == ("m", "/models/m", 4000)
    assert server.request("GET", "/nowhere")[0] == 404
    assert server.request("GET", "/v1/completions")[0] == 405
    assert server.metric("process_start_time_seconds")


def test_requests_that_are_refused(serve: Serve) -> None:
    server = serve("--max-model-len=64").ready()
    status, text = server.request("POST", "/v1/chat/completions", CHAT | {"model": "other"})
    assert (status, json.loads(text)["error"]["message"]) == (404, "The model `other` does not exist.")
    status, text = server.request("POST", "/v1/chat/completions", CHAT | {"max_tokens": 64})
    assert status == 400
    assert "maximum context length is 64 tokens" in text
    assert server.request("POST", "/v1/chat/completions", CHAT | {"messages": []})[0] == 400
    assert server.request("POST", "/v1/chat/completions", [])[0] == 400


@pytest.mark.parametrize(("flags", "env"), [(["--api-key=secret"], {}), ([], {"VLLM_API_KEY": "secret"})])
def test_an_api_key_is_asked_for(serve: Serve, flags: list[str], env: dict[str, str]) -> None:
    server = serve(*flags, env=env).ready()
    assert server.request("GET", "/v1/models")[0] == 401
    assert server.request("GET", "/v1/models", Authorization="Bearer wrong")[0] == 401
    assert server.request("GET", "/v1/models", Authorization="Bearer secret")[0] == 200
    assert server.request("GET", "/health")[0] == 200


def test_a_stream_has_the_shape_of_vllm(serve: Serve) -> None:
    stream = serve().ready().stream(max_tokens=12)
    first, second = stream.chunks[0], stream.chunks[1]
    assert first.choice["delta"] == {"role": "assistant", "content": ""}
    assert second.choice["delta"] == {"reasoning": "[simulated]"}
    assert stream.text("reasoning").split()[0] == "[simulated]"
    assert len(stream.text("reasoning").split()) == 4
    assert len(stream.text("content").split()) == 8
    assert [chunk.choice["finish_reason"] for chunk in stream.chunks[-3:-1]] == [None, "length"]
    assert stream.chunks[-1].data["choices"] == []
    assert stream.usage["prompt_tokens"] == len(first.data["prompt_token_ids"])
    assert stream.usage["completion_tokens"] == len(stream.tokens) == 12
    assert stream.usage["completion_tokens_details"] == {"reasoning_tokens": 4}
    assert stream.done


def test_an_answer_ends_by_itself_unless_told_otherwise(serve: Serve) -> None:
    server = serve().ready()
    stopped = server.stream(max_tokens=250)
    assert (stopped.finish, len(stopped.tokens)) == ("stop", 200)
    assert len(server.stream(max_tokens=250, ignore_eos=True).tokens) == 250


def test_an_answer_in_one_piece_says_the_same_as_a_stream(serve: Serve) -> None:
    plain = serve().ready()
    drafting = serve(NGRAM, "--tensor-parallel-size=1", "--gpu-memory-utilization=0").ready()
    stream = drafting.stream("hi", max_tokens=40)
    body = json.loads(plain.request("POST", "/v1/chat/completions", CHAT | {"max_tokens": 40, "return_token_ids": True})[1])
    message = body["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == (stream.text("reasoning"), stream.text("content"))
    assert body["choices"][0]["token_ids"] == stream.tokens
    assert body["usage"]["completion_tokens"] == 40


def test_plain_completions_do_not_think(serve: Serve) -> None:
    server = serve().ready()
    status, text = server.request("POST", "/v1/completions", {"model": "m", "prompt": [1, 2, 3], "max_tokens": 5})
    body = json.loads(text)
    assert (status, body["object"], body["usage"]["prompt_tokens"]) == (200, "text_completion", 3)
    assert len(body["choices"][0]["text"].split()) == 5


def test_without_speculation_there_is_no_such_metric(serve: Serve) -> None:
    server = serve().ready()
    stream = server.stream(max_tokens=32)
    assert all(len(chunk.tokens) == 1 for chunk in stream.token_chunks)
    assert server.metric("vllm:spec_decode_num_drafts_total") is None
    assert server.metric("vllm:generation_tokens_total", engine="0", model_name="m") == 32
    assert server.metric("vllm:prompt_tokens_total") == stream.usage["prompt_tokens"]
    assert server.metric("vllm:request_success_total", finished_reason="length") == 1
    assert server.metric("vllm:generation_tokens_created") == pytest.approx(server.metric("process_start_time_seconds"), abs=5)


def test_counters_equal_what_was_streamed(serve: Serve) -> None:
    server = serve(NGRAM).ready()
    streams = [server.stream(f"prompt {number}", max_tokens=60) for number in range(4)]
    steps = sum(len(stream.token_chunks) - 1 for stream in streams)  # the first token comes from the prefill, without a draft
    cut = sum(len(chunk.tokens) - 1 for stream in streams for chunk in stream.token_chunks[1:])
    accepted = server.metric("vllm:spec_decode_num_accepted_tokens_total")
    assert server.metric("vllm:generation_tokens_total") == 4 * 60
    assert server.metric("vllm:spec_decode_num_drafts_total") == steps
    assert server.metric("vllm:spec_decode_num_draft_tokens_total") == 5 * steps
    assert accepted is not None
    assert cut <= accepted <= cut + 4 * 5, "counted before an answer is cut at max_tokens"
    by_position = [
        server.metric("vllm:spec_decode_num_accepted_tokens_per_pos_total", position=str(position)) or 0 for position in range(5)
    ]
    assert sum(by_position) == accepted
    assert by_position == sorted(by_position, reverse=True)
    assert server.metric("vllm:spec_decode_num_accepted_tokens_per_pos_total", position="5") is None


def test_a_repeated_prompt_hits_the_prefix_cache(serve: Serve) -> None:
    server = serve().ready()
    for _ in range(2):
        server.stream("word " * 100, max_tokens=2)
    assert server.metric("vllm:prefix_cache_queries_total") == 2 * 130
    assert server.metric("vllm:prefix_cache_hits_total") == 128
    server.stream("word " * 100, max_tokens=2, cache_salt="another")
    assert server.metric("vllm:prefix_cache_hits_total") == 128, "a prompt of another salt is not found"


def test_a_client_that_leaves_frees_its_place(serve: Serve) -> None:
    server = serve(PROFILE="kimi-k2.5").ready()
    with pytest.raises(TimeoutError):
        _leave_early(server)
    until(lambda: server.metric("vllm:num_requests_running") == 0)
    assert server.metric("vllm:request_success_total", finished_reason="abort") == 1


def _leave_early(server: SimServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=0.3)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(CHAT | {"max_tokens": 500}))
        connection.getresponse()
    finally:
        connection.close()


def test_truncated_stream(serve: Serve) -> None:
    stream = serve(FAULT="truncate=5").ready().stream()
    assert (len(stream.tokens), stream.finish, stream.done, stream.broken, stream.usage) == (5, None, False, False, {})


def test_aborted_stream(serve: Serve) -> None:
    stream = serve(FAULT="abort=5").ready().stream()
    assert (len(stream.tokens), stream.finish, stream.done) == (5, "abort", True)


def test_reset_stream(serve: Serve) -> None:
    stream = serve(FAULT="reset=5").ready().stream()
    assert (stream.broken, stream.done) == (True, False)


def test_error_in_a_stream(serve: Serve) -> None:
    server = serve(FAULT="error_chunk=5").ready()
    stream = server.stream()
    assert "EngineCore encountered an issue" in stream.chunks[-1].data["error"]["message"]
    assert (len(stream.tokens), stream.done) == (5, True)
    assert server.request("POST", "/v1/chat/completions", CHAT)[0] == 500


def test_exit_in_a_stream(serve: Serve) -> None:
    server = serve(FAULT="exit_mid_stream=5").ready()
    stream = server.stream()
    assert (len(stream.tokens), stream.broken) == (5, True)
    assert server.wait() == 1
    assert "EngineDeadError" in server.output


def test_a_stream_fault_can_wait_for_its_request(serve: Serve) -> None:
    server = serve(FAULT="truncate=5@request=2,no_usage@request=3").ready()
    server.stream(max_tokens=1)  # a probe does not count
    streams = [server.stream() for _ in range(4)]
    assert [stream.done for stream in streams] == [True, False, True, True]
    assert [bool(stream.usage) for stream in streams] == [True, False, False, True]


def test_wrong_health(serve: Serve) -> None:
    assert serve(FAULT="wrong_health").ready().request("GET", "/health")[0] == 500


def test_term_cuts_a_running_stream(serve: Serve) -> None:
    server = serve(PROFILE="kimi-k2.5").ready()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(server.stream, max_tokens=2000)
        until(lambda: (server.metric("vllm:generation_tokens_total") or 0) > 3)
        began = time.monotonic()
        server.process.terminate()
        assert server.wait() == 0
        assert time.monotonic() - began < 1.5
        assert running.result().broken


def test_the_lines_of_an_interval() -> None:
    metrics = Metrics("m", 2, 4096)
    stats = IntervalStats(metrics)
    assert stats.lines() == [], "silent without traffic"
    metrics.counters.generation_tokens += 5
    for accepted in (2, 0):
        metrics.counters.count_step(Verified(2, accepted))
    (_, engine), (_, speculation) = stats.lines()
    assert engine.startswith("Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: ")
    assert speculation.startswith("SpecDecoding metrics: Mean acceptance length: 2.00, Accepted throughput: ")
    assert speculation.endswith(
        "Accepted: 2 tokens, Drafted: 4 tokens, Per-position acceptance rate: 0.500, 0.500, Avg Draft acceptance rate: 50.0%"
    )
    assert len(stats.lines()) == 1, "one idle interval more"
    assert stats.lines() == []
