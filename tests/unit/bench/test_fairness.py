"""Conditions of a phase: the prefix cache, other people's requests, a restarted server, a stepped clock, the warm-up."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

import pytest

from service.domain.measurement import RequestResult
from service.domain.reasons import Reason
from service.domain.speculation import EngineCounters
from workers.bench.run import Asked, BenchRefused, run_bench_blocking, run_phase_blocking, run_warmup_blocking, still_faster

STRICT = '{"error":{"message":"Unrecognized request argument supplied: cache_salt","code":400}}'


def test_every_request_has_a_salt_of_its_own_and_asks_for_ids(serve: Any, say: Any, target: Any, asked: Any) -> None:
    server = serve(lambda _: say.good())
    for _ in range(2):
        summary = run_phase_blocking(target(server), asked(2, repeat=2), 2).result.summary
    salts = [one.body["cache_salt"] for one in server.asked]
    assert len(set(salts)) == len(salts) == 8
    assert all(one.body["return_token_ids"] is True for one in server.asked)
    assert summary.conditions is not None
    assert (summary.conditions.cache_salt, summary.conditions.warnings) == ("sent", [])


def test_the_experiments_own_salt_stays(serve: Any, say: Any, target: Any, asked: Any) -> None:
    server = serve(lambda _: say.good())
    body = {"cache_salt": "mine", "return_token_ids": False}
    conditions = run_phase_blocking(target(server), asked(extra_body=body), 1).result.summary.conditions
    assert (server.asked[0].body["cache_salt"], server.asked[0].body["return_token_ids"]) == ("mine", False)
    assert conditions is not None
    assert conditions.cache_salt == "given"


def test_a_server_that_refuses_the_extra_keys_is_asked_without_them(serve: Any, say: Any, target: Any, asked: Any) -> None:
    server = serve(lambda asked: say.refusal("400 Bad Request", STRICT) if "cache_salt" in asked.body else say.good())
    phase = run_phase_blocking(target(server), asked(3), 1).result
    assert phase.summary.valid
    assert ["cache_salt" in one.body for one in server.asked] == [True, False, False, False]
    assert phase.summary.conditions is not None
    assert (phase.summary.conditions.cache_salt, phase.summary.conditions.warnings) == ("refused", ["prefix_cache_unknown"])


def test_what_is_refused_either_way_is_refused(serve: Any, say: Any, target: Any, asked: Any) -> None:
    server = serve(lambda _: say.refusal("400 Bad Request", '{"error":{"message":"min_p is not supported with speculative decoding"}}'))
    phase = run_phase_blocking(target(server), asked(), 1).result
    assert (phase.requests[0].reason, phase.summary.valid) == (Reason.REQUEST_REFUSED, False)
    assert phase.summary.conditions is not None
    assert phase.summary.conditions.cache_salt == "sent"


@pytest.mark.parametrize("streaming", [False, True])
def test_refused_parameters_are_found_before_the_run(serve: Any, say: Any, target: Any, asked: Any, streaming: bool) -> None:
    words = "The min_p, logit_bias parameters are not yet supported with speculative decoding."
    error = {"error": {"message": words, "type": "BadRequestError", "code": 400}}
    refusal = say.stream(say.data(error), say.DONE) if streaming else say.refusal("400 Bad Request", json.dumps(error))
    server = serve(lambda asked: refusal if "min_p" in asked.body else say.good())
    bench = asked(5, warmup=3, extra_body={"min_p": 0.1})
    with pytest.raises(BenchRefused) as caught:
        run_bench_blocking(target(server), bench)
    assert words in caught.value.why
    assert {one.body["messages"][0]["content"] for one in server.asked}.isdisjoint({f"x{i}" for i in range(5)})
    warm = run_warmup_blocking(target(server), bench)
    assert warm.first_request is not None
    assert (warm.first_request.reason, warm.rest) == (Reason.REQUEST_REFUSED, [])
    assert run_bench_blocking(target(server), asked(1, warmup=2)).phases[0].summary.valid


def test_the_warm_up_keeps_within_the_experiments_own_least_length(serve: Any, say: Any, target: Any, asked: Any) -> None:
    server = serve(lambda _: say.good())
    run_warmup_blocking(target(server), asked(warmup=1, max_tokens=900, extra_body={"min_tokens": 700}))
    run_warmup_blocking(target(server), asked(warmup=1, max_tokens=900))
    assert [one.body["max_tokens"] for one in server.asked] == [700, 256]


def paced(tpot: float | None, tokens: int | None = 64, *, ok: bool = True) -> RequestResult:
    return RequestResult(prompt="w", repeat=0, ok=ok, tpot_s=tpot, completion_tokens=tokens)


@pytest.mark.parametrize(
    ("results", "faster"),
    [
        ([], None),
        ([paced(0.02)], None),
        ([paced(0.04), paced(0.02)], True),
        ([paced(0.02), paced(0.019)], False),
        ([paced(0.02), paced(0.03)], False),
        ([paced(0.09), paced(0.02), paced(0.02)], False),
        ([paced(0.04, 5), paced(0.02)], None),
        ([paced(0.04), paced(None, None)], None),
        ([paced(0.04, ok=False), paced(0.02)], None),
    ],
)
def test_settling_is_two_requests_at_the_same_pace(results: list[RequestResult], faster: bool | None) -> None:
    assert still_faster(results) is faster


def test_the_warm_up_goes_on_while_the_engine_gets_faster(serve: Any, say: Any, target: Any, asked: Any) -> None:
    pauses = itertools.chain([0.02, 0.006], itertools.repeat(0.002))
    server = serve(lambda _: say.good("a" * 20, pause=next(pauses)))
    warm = run_warmup_blocking(target(server), asked(warmup=2))
    assert len(warm.rest) >= 2
    assert 3 <= len(server.asked) <= 8


class Page:
    """Counters of an engine that also serves somebody else, has a cache, or is another process in the end."""

    def __init__(self, served: Any, **more: Any) -> None:
        self.served, self.more, self.readings = served, more, 0

    def __call__(self) -> EngineCounters:
        self.readings += 1
        tokens, more = 5.0 * self.served(), self.more
        foreign = more.get("foreign", 0.0) * (tokens > 0)
        start = more.get("starts", (1.0,))[min(self.readings - 1, len(more.get("starts", (1.0,))) - 1)]
        return EngineCounters(
            engine="vllm",
            generation_tokens=tokens + foreign,
            prompt_tokens=9.0 * self.served() + more.get("foreign_prompts", 0.0) * (tokens > 0),
            running=more.get("running", 0.0),
            prefix_cache_queries=9.0 * self.served(),
            prefix_cache_hits=more.get("hits", 0.0) * self.served(),
            process_start=start,
        )


@pytest.mark.parametrize(
    ("more", "warnings", "figures"),
    [
        ({}, [], {"foreign_tokens": 0, "foreign_prompt_tokens": 0, "busy_at_start": False, "server_restarted": False}),
        ({"foreign": 500.0}, ["other_requests_seen"], {"foreign_tokens": 500}),
        ({"foreign_prompts": 4000.0}, ["other_requests_seen"], {"foreign_prompt_tokens": 4000}),
        ({"foreign": 3.0}, [], {"foreign_tokens": 3}),
        ({"running": 2.0}, ["busy_at_start"], {"busy_at_start": True}),
        ({"hits": 8.0}, ["prefix_cache_hits"], {"prefix_cache_hit_rate": 8 / 9}),
        ({"starts": (1.0, 2.0)}, ["server_restarted"], {"server_restarted": True, "foreign_tokens": None}),
    ],
)
def test_what_the_counters_say_about_the_conditions(
    serve: Any, say: Any, target: Any, asked: Any, more: dict[str, Any], warnings: list[str], figures: dict[str, Any]
) -> None:
    server = serve(lambda _: say.good("abcde"))
    summary = run_phase_blocking(target(server), asked(4), 2, counters=Page(lambda: len(server.asked), **more)).result.summary
    found = summary.conditions
    assert found is not None
    assert found.warnings == warnings
    assert {name: getattr(found, name) for name in figures} == pytest.approx(figures)
    restarted = warnings == ["server_restarted"]
    assert (summary.valid, summary.failed) == (not restarted, 0)
    assert summary.invalid_reason == (Reason.SERVER_RESTARTED_DURING_RUN if restarted else None)


@pytest.mark.parametrize(
    ("configured", "status", "warnings"), [(True, "never_drafted", []), (False, "off", []), (None, "off", ["off_or_never_drafted"])]
)
def test_who_knows_what_the_server_was_asked_for_tells_idle_from_off(
    serve: Any, say: Any, target: Any, asked: Any, configured: bool | None, status: str, warnings: list[str]
) -> None:
    server = serve(lambda _: say.good("abcde"))
    idle = {"engine": "llamacpp", "drafts": 0.0, "draft_tokens": 0.0, "accepted_tokens": 0.0}
    counters = lambda: EngineCounters(generation_tokens=5.0 * len(server.asked), **idle)  # noqa: E731 - shorter than a function
    phase = run_phase_blocking(target(server), asked(1), 1, counters=counters, asked=Asked(configured)).result
    for found in (phase.speculation, phase.requests[0].speculation):
        assert found is not None
        assert (found.status, found.warnings) == (status, warnings)


def test_counters_that_go_backwards_are_another_server(serve: Any, say: Any, target: Any, asked: Any) -> None:
    server = serve(lambda _: say.good("abcde"))
    readings = itertools.chain([900.0], itertools.repeat(10.0))
    counters = lambda: EngineCounters(engine="vllm", generation_tokens=next(readings))  # noqa: E731 - shorter than a function
    summary = run_phase_blocking(target(server), asked(2), 2, counters=counters).result.summary
    assert summary.invalid_reason == Reason.SERVER_RESTARTED_DURING_RUN
    assert not summary.valid


def test_hits_are_taken_from_the_answers_where_no_counter_tells(serve: Any, say: Any, target: Any, asked: Any) -> None:
    usage = say.usage(1, prompt=100, prompt_tokens_details={"cached_tokens": 64})
    server = serve(lambda _: say.stream(say.delta("stop", content="a"), usage, say.DONE))
    phase = run_phase_blocking(target(server), asked(2), 1).result
    assert [request.cached_tokens for request in phase.requests] == [64, 64]
    assert phase.summary.conditions is not None
    assert phase.summary.conditions.prefix_cache_hit_rate == pytest.approx(0.64)
    assert phase.summary.conditions.warnings == ["prefix_cache_hits"]


def test_a_wall_clock_that_is_stepped_by_an_hour_changes_nothing(
    serve: Any, say: Any, target: Any, asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall = time.time
    steps = itertools.count()
    monkeypatch.setattr(time, "time", lambda: wall() + (3600 if next(steps) % 2 else -3600))
    monkeypatch.setattr(time, "time_ns", lambda: int(time.time() * 1e9))
    server = serve(lambda _: say.good("abcde", pause=0.02))
    summary = run_phase_blocking(target(server), asked(2), 2).result.summary
    time.time()
    assert next(steps) > 0
    assert summary.valid
    assert summary.duration_s < 5
    for figure in (summary.ttft_ms, summary.tpot_ms, summary.itl_ms, summary.e2e_ms):
        assert figure.p99 is not None
        assert 0 < figure.p99 < 1000


def test_no_module_of_the_load_client_reads_the_wall_clock() -> None:
    from pathlib import Path  # noqa: PLC0415

    import workers.bench  # noqa: PLC0415

    for file in Path(workers.bench.__file__).parent.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert "time.time(" not in text, file.name
        assert "datetime.now(" not in text, file.name


def test_the_clients_own_lateness_is_recorded(serve: Any, say: Any, target: Any, asked: Any) -> None:
    server = serve(lambda _: say.good("abcde", pause=0.02))
    conditions = run_phase_blocking(target(server), asked(2), 1).result.summary.conditions
    assert conditions is not None
    assert conditions.loop_lag_ms_p99 is not None
    assert conditions.loop_lag_ms_max is not None
    assert 0 <= conditions.loop_lag_ms_p99 <= conditions.loop_lag_ms_max


def test_connections_are_open_before_the_clock_starts(
    serve: Any, say: Any, target: Any, asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio  # noqa: PLC0415

    from workers.bench import request  # noqa: PLC0415

    connect = request.connect

    async def slow(*words: Any) -> Any:
        opened = await connect(*words)
        await asyncio.sleep(0.15)
        return opened

    monkeypatch.setattr(request, "connect", slow)
    server = serve(lambda _: say.good("ab", pause=0.01))
    phase = run_phase_blocking(target(server), asked(4), 2).result
    assert phase.summary.ttft_ms.p99 is not None
    assert phase.summary.ttft_ms.p99 < 120
