"""Phases, warm-up, counters, and how a run is stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from service.domain.measurement import RequestResult
from service.domain.reasons import Reason
from service.domain.spec import Bench, Prompt
from service.domain.speculation import EngineCounters
from workers.bench.prompts import builtin_prompts, warmup_prompts
from workers.bench.run import BenchStopped, order, run_bench_blocking, run_phase_blocking, run_warmup_blocking


def test_the_order_is_shuffled_and_the_same_every_time() -> None:
    prompts = builtin_prompts()
    found = [(prompt.id, turn) for prompt, turn in order(prompts, 5)]
    assert found == [(prompt.id, turn) for prompt, turn in order(list(reversed(prompts)), 5)]
    assert len(set(found)) == 25
    rounds = [tuple(name for name, turn in found if turn == wanted) for wanted in range(5)]
    assert len(set(rounds)) > 1
    assert all(set(names) == {prompt.id for prompt in prompts} for names in rounds)
    assert [turn for _, turn in found] == sorted(turn for _, turn in found)


def test_a_closed_loop_keeps_its_concurrency(serve: Any, say: Any, target: Any, asked: Any) -> None:
    server = serve(lambda _: say.good("abc", pause=0.02))
    seen: list[RequestResult] = []
    run = run_phase_blocking(target(server), asked(4, repeat=3), 4, on_request=seen.append)
    assert server.most_at_once == 4
    assert len(server.asked) == len(seen) == 12
    summary = run.result.summary
    assert (summary.requests, summary.failed, summary.valid, summary.output_tokens) == (12, 0, True, 36)
    assert summary.output_tps == pytest.approx(36 / summary.duration_s)
    assert {(request.prompt, request.repeat) for request in run.result.requests} == {(f"p{p}", r) for p in range(4) for r in range(3)}
    assert run.result.speculation is None
    assert run.loop_lag_ms_p99 is not None


def test_what_is_sent(serve: Any, say: Any, target: Any, asked: Any) -> None:
    server = serve(lambda _: say.good())
    run_phase_blocking(target(server, headers={"Authorization": "Bearer key"}), asked(extra_body={"top_k": 3}, temperature=0.5), 1)
    sent = server.asked[0]
    assert sent.path == "/v1/chat/completions"
    assert sent.headers["authorization"] == "Bearer key"
    salt = sent.body.pop("cache_salt")
    assert isinstance(salt, str)
    assert salt
    assert (sent.body.pop("return_token_ids"), sent.body.pop("cache_prompt")) == (True, False)
    assert sent.body == {
        "model": "m",
        "messages": [{"role": "user", "content": "x0"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 64,
        "temperature": 0.5,
        "top_k": 3,
    }


def test_plain_prompts_go_to_the_completions_route_and_so_does_their_warm_up(serve: Any, say: Any, target: Any) -> None:
    server = serve(lambda _: say.stream(say.data({"choices": [{"text": "a", "finish_reason": "stop"}]}), say.usage(1), say.DONE))
    bench = Bench(prompts=[Prompt(id="a", prompt="Once", max_tokens=7)], repeat=1, warmup=1, concurrency=[1])
    report = run_bench_blocking(target(server), bench)
    assert [asked.path for asked in server.asked] == ["/v1/completions"] * 2
    assert (server.asked[1].body["prompt"], server.asked[1].body["max_tokens"]) == ("Once", 7)
    assert report.phases[0].summary.valid


def test_one_failure_makes_the_phase_invalid_and_enters_no_average(serve: Any, say: Any, target: Any, asked: Any) -> None:
    bad = say.stream(say.delta(content="x"), 0.3, say.data({"error": {"message": "boom", "code": 500}}), say.DONE)
    server = serve(lambda asked: bad if asked.number == 1 else say.good("abc"))
    phase = run_phase_blocking(target(server), asked(3), 1).result
    assert (phase.summary.failed, phase.summary.valid, phase.summary.output_tokens) == (1, False, 6)
    assert [request.reason for request in phase.requests] == [None, Reason.ABORTED_BY_SERVER, None]
    assert phase.summary.tps.p50 is not None
    assert phase.summary.e2e_ms.p99 is not None
    assert phase.summary.e2e_ms.p99 < 250


def test_the_first_request_is_kept_apart_and_no_measured_prompt_warms_up(serve: Any, say: Any, target: Any, asked: Any) -> None:
    server = serve(lambda _: say.good())
    levels: list[int] = []
    report = run_bench_blocking(target(server), asked(2, warmup=3, concurrency=[1, 2]), label="x", on_phase=levels.append)
    assert levels == [0, 1, 2]
    assert report.first_request is not None
    assert report.first_request.prompt == "warmup-0"
    assert [request.prompt for request in report.warmup] == ["warmup-1", "warmup-2"]
    assert [phase.concurrency for phase in report.phases] == [1, 2]
    assert len(server.asked) == 3 + 2 + 2
    assert {prompt.id for prompt in warmup_prompts()}.isdisjoint(prompt.id for prompt in builtin_prompts())
    assert run_warmup_blocking(target(server), asked()).first_request is None


class Engine:
    """Counters that follow the served answers with a delay of some readings."""

    def __init__(self, served: Callable[[], int], late: int = 0, foreign: int = 0) -> None:
        self.served, self.late, self.foreign = served, late, foreign
        self.shown = self.readings = self.held = 0

    def __call__(self) -> EngineCounters:
        assert threading.current_thread() is not threading.main_thread()
        self.readings += 1
        now = self.served()
        if now != self.shown:
            self.held += 1
            if self.held > self.late:
                self.shown, self.held = now, 0
        tokens = 5 * self.shown
        return EngineCounters(
            engine="vllm",
            generation_tokens=tokens + self.foreign * (self.shown > 0),
            drafts=2.0 * self.shown,
            draft_tokens=6.0 * self.shown,
            accepted_tokens=2.0 * self.shown,
            accepted_per_position=[2.0 * self.shown, 0.0, 0.0],
        )


@pytest.mark.parametrize("late", [0, 3])
def test_counters_around_each_request_and_the_phase(serve: Any, say: Any, target: Any, asked: Any, late: int) -> None:
    server = serve(lambda _: say.good("abcde"))
    phase = run_phase_blocking(target(server), asked(2), 1, counters=Engine(lambda: len(server.asked), late)).result
    for request in phase.requests:
        assert request.speculation is not None
        assert (request.speculation.status, request.speculation.drafts) == ("on", 2)
        assert request.speculation.mean_acceptance_length == pytest.approx(2.0)
    assert phase.speculation is not None
    assert (phase.speculation.drafts, phase.speculation.accepted_tokens, phase.speculation.warnings) == (4, 4, [])


def test_only_the_phase_has_counters_where_requests_overlap(serve: Any, say: Any, target: Any, asked: Any) -> None:
    server = serve(lambda _: say.good("abcde"))
    phase = run_phase_blocking(target(server), asked(4), 2, counters=Engine(lambda: len(server.asked))).result
    assert all(request.speculation is None for request in phase.requests)
    assert phase.speculation is not None
    assert phase.speculation.drafts == 8


def test_other_traffic_is_told(serve: Any, say: Any, target: Any, asked: Any) -> None:
    server = serve(lambda _: say.good("abcde"))
    phase = run_phase_blocking(target(server), asked(2), 2, counters=Engine(lambda: len(server.asked), foreign=500)).result
    assert phase.speculation is not None
    assert "other_requests_seen" in phase.speculation.warnings


def test_what_the_answers_say_is_set_beside_the_counters(serve: Any, say: Any, target: Any, asked: Any) -> None:
    def told(drafts: int) -> dict[str, Any]:
        figures = {"num_spec_steps": drafts, "num_accepted_draft_tokens": 2, "num_draft_tokens": 6, "acceptance_histogram": [0, 2]}
        return {"metrics": {"speculative_decoding": figures}}

    def answers(drafts: int) -> Any:
        usage = say.data({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5}, **told(drafts)})
        return lambda _: say.stream(say.delta(content="a"), say.delta("stop", content="b"), usage, say.DONE)

    for drafts, warnings in ((2, []), (3, ["payload_differs_from_counters"])):
        server = serve(answers(drafts))
        phase = run_phase_blocking(target(server), asked(2), 1, counters=Engine(lambda server=server: len(server.asked))).result
        assert phase.speculation is not None
        assert (phase.speculation.source, phase.speculation.drafts, phase.speculation.warnings) == ("prometheus", 4, warnings)
        assert [request.speculation.warnings for request in phase.requests if request.speculation] == [warnings] * 2
    alone = run_phase_blocking(target(serve(answers(2))), asked(4), 2).result
    assert alone.speculation is not None
    assert (alone.speculation.source, alone.speculation.drafts, alone.speculation.mean_acceptance_length) == ("usage", 8, 2.0)


def _broken() -> EngineCounters | None:
    raise OSError("no route")


@pytest.mark.parametrize("counters", [lambda: None, _broken])
def test_counters_that_cannot_be_read_are_not_reported(serve: Any, say: Any, target: Any, asked: Any, counters: Any) -> None:
    phase = run_phase_blocking(target(serve(lambda _: say.good())), asked(), 1, counters=counters).result
    assert phase.summary.valid
    assert phase.speculation is not None
    assert phase.speculation.status == "not_reported"


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_stop_cuts_what_is_in_flight(serve: Any, say: Any, target: Any, asked: Any, concurrency: int) -> None:
    server = serve(lambda _: say.stream(say.delta(content="a"), say.HANG))
    begun = time.monotonic()
    with pytest.raises(BenchStopped, match="stopped"):
        run_phase_blocking(target(server), asked(6), concurrency, should_stop=lambda: time.monotonic() - begun > 0.3)
    assert time.monotonic() - begun < 2
    assert len(server.asked) == concurrency
    assert "expctl-bench" not in {thread.name for thread in threading.enumerate()}


class ClaimGone(Exception):
    pass


@pytest.mark.parametrize("place", ["on_request", "should_stop"])
def test_what_a_callback_raises_ends_the_phase_and_comes_out(serve: Any, say: Any, target: Any, asked: Any, place: str) -> None:
    server = serve(lambda asked: say.good() if asked.number == 0 else say.stream(say.HANG))

    def give_up(*_: Any) -> bool:
        if server.asked:
            raise ClaimGone
        return False

    with pytest.raises(ClaimGone):
        run_phase_blocking(target(server), asked(3), 1, **{place: give_up})
    assert "expctl-bench" not in {thread.name for thread in threading.enumerate()}


def test_callbacks_run_in_the_callers_thread(serve: Any, say: Any, target: Any, asked: Any) -> None:
    threads: set[str] = set()
    run_phase_blocking(
        target(serve(lambda _: say.good())),
        asked(2),
        1,
        on_request=lambda _: threads.add(threading.current_thread().name),
        should_stop=lambda: threads.add(threading.current_thread().name) is not None,
    )
    assert threads == {threading.current_thread().name}


def test_a_slow_callback_does_not_slow_the_measurement(serve: Any, say: Any, target: Any, asked: Any) -> None:
    server = serve(lambda _: say.good("abcdefghij", pause=0.02))
    slow = threading.Event()
    run = run_phase_blocking(target(server), asked(8), 4, on_request=lambda _: bool(slow.wait(0.2)))
    assert run.result.summary.duration_s < 1.2
    assert run.result.summary.tpot_ms.p99 is not None
    assert run.result.summary.tpot_ms.p99 < 60


def test_the_time_spent_on_counters_is_not_the_servers(serve: Any, say: Any, target: Any, asked: Any) -> None:
    server = serve(lambda _: say.good("abc"))
    engine = Engine(lambda: len(server.asked))
    pause = threading.Event()

    def slow() -> EngineCounters:
        pause.wait(0.15)
        return engine()

    begun = time.monotonic()
    summary = run_phase_blocking(target(server), asked(2), 1, counters=slow).result.summary
    assert time.monotonic() - begun > 0.6
    assert summary.duration_s < 0.3
