"""warm, measure and collect, with the load client replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from service.domain.measurement import RequestResult
from service.domain.reasons import Reason
from service.domain.spec import Spec
from service.domain.speculation import Speculation
from service.domain.status import Outcome
from tests.unit.steps.stage import ADDRESS, UNIT, Stage, gpus, make_spec, phase_run, request
from workers.bench.run import Asked, PhaseRun, WarmUp
from workers.bench.target import Target
from workers.engines.base import Readiness
from workers.engines.vllm_log import VllmLoadLog
from workers.steps.base import Cancelled, StepFailed
from workers.steps.benching import LOG_EVERY_S, asked_of, keep_watch
from workers.steps.collect import collect
from workers.steps.measure import measure
from workers.steps.warm import warm

During = Callable[[int], None]


class Client:
    """Answers at once; `during` happens while a level is measured."""

    def __init__(self, results: list[RequestResult], during: During | None = None) -> None:
        self.results, self.during = results, during
        self.settled: bool | None = None
        self.shown: dict[str, Any] = {}
        """What the phases' result says besides."""
        self.levels: list[int] = []
        self.targets: list[Target] = []
        self.asked: list[Asked] = []

    def measure(
        self, target: Target, bench: Any, level: int, *, on_request: Any, should_stop: Any, counters: Any, asked: Asked
    ) -> PhaseRun:
        del bench, counters
        self.asked.append(asked)
        self.levels.append(level)
        self.targets.append(target)
        for result in self.results:
            should_stop()
            on_request(result)
        if self.during:
            self.during(level)
        should_stop()
        run = phase_run(level, self.results)
        return replace(run, result=run.result.model_copy(update=self.shown))

    def warm(self, target: Target, bench: Any, *, should_stop: Any) -> WarmUp:
        del bench
        self.targets.append(target)
        should_stop()
        if self.during:
            self.during(0)
        return WarmUp(self.results[0], self.results[1:], self.settled)


@pytest.fixture
def serving(stage: Stage) -> Stage:
    stage.start(listening=True)
    return stage


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Client]:
    def install(*results: RequestResult, during: During | None = None) -> Client:
        client = Client(list(results) or [request()], during)
        monkeypatch.setattr("workers.steps.measure.run_phase_blocking", client.measure)
        monkeypatch.setattr("workers.steps.warm.run_warmup_blocking", client.warm)
        return client

    return install


def failure(step: Callable[..., None], stage: Stage) -> StepFailed:
    with pytest.raises(StepFailed) as caught:
        step(stage.ctx)
    return caught.value


def test_every_level_is_measured(serving: Stage, use: Callable[..., Client]) -> None:
    client = use(request("code", tps=50.0), request("maths"))
    measure(serving.ctx)
    assert client.levels == [1, 2]
    assert (client.targets[0].base_url, client.targets[0].model) == (f"{ADDRESS}/v1", "m")
    assert [(phase.concurrency, phase.ended, len(phase.requests)) for phase in serving.recorder.phases] == [(1, True, 2), (2, True, 2)]
    assert serving.recorder.provenance == {"loop_lag_ms_p99@1": 1.5, "loop_lag_ms_p99@2": 1.5}
    assert serving.recorder.shown[0] == {"event": "bench", "concurrency": 1, "done": 1, "requests": 5, "tps": 50.0, "ok": True}


def test_only_what_was_not_measured_whole_is_measured(serving: Stage, use: Callable[..., Client]) -> None:
    serving.spec = make_spec(bench={"concurrency": [1, 2, 4], "repeat": 1})
    recorder = serving.recorder
    recorder.end_phase(recorder.begin_phase("measured", 2), None, None)
    recorder.add_request(recorder.begin_phase("measured", 4), request())  # cut by a crash
    client = use()
    measure(serving.ctx)
    assert client.levels == [1, 4]


def test_a_warm_up_phase_is_no_measurement(serving: Stage, use: Callable[..., Client]) -> None:
    serving.recorder.end_phase(serving.recorder.begin_phase("warmup", 1), None, None)
    client = use()
    measure(serving.ctx)
    assert client.levels == [1, 2]


def test_a_server_restarted_while_it_was_measured_is_found_out(serving: Stage, use: Callable[..., Client]) -> None:
    use(during=lambda _level: serving.restart_by_somebody())
    found = failure(measure, serving)
    assert (found.reason, found.outcome) == (Reason.SERVER_RESTARTED_DURING_RUN, Outcome.INVALID)
    assert serving.recorder.measured_levels() == set()


def test_an_engine_that_dies_while_it_is_measured(serving: Stage, use: Callable[..., Client]) -> None:
    def die(_level: int) -> None:
        serving.host.say(UNIT, "FATAL cuda_out_of_memory out of memory", "bye")
        serving.host.end(UNIT, exit_status=None, signal=6)

    use(during=die)
    found = failure(measure, serving)
    assert (found.reason, found.evidence) == (Reason.ENGINE_DEAD, "out of memory")
    assert "(signal 6)" in found.detail


def test_an_unknown_state_is_no_life(serving: Stage, use: Callable[..., Client]) -> None:
    use(during=lambda _level: serving.lose_sight())
    assert failure(measure, serving).reason == Reason.REMOTE_COMMAND_FAILED


@pytest.mark.parametrize(
    ("readiness", "reason"),
    [
        (Readiness(False, detail="it hangs"), Reason.ENGINE_UNRESPONSIVE),
        (Readiness(False, reason=Reason.WRONG_SERVER_ON_PORT, detail="serves y"), Reason.WRONG_SERVER_ON_PORT),
    ],
)
def test_a_server_that_no_longer_serves_is_not_measured(
    serving: Stage, use: Callable[..., Client], readiness: Readiness, reason: Reason
) -> None:
    client = use()
    serving.engine.readiness = readiness
    assert failure(measure, serving).reason == reason
    assert failure(warm, serving).reason == reason
    assert client.targets == []


def test_a_dead_engine_is_called_dead_and_not_unresponsive(serving: Stage, use: Callable[..., Client]) -> None:
    use()
    serving.engine.readiness = Readiness(False, detail="connection refused")
    serving.host.end(UNIT, exit_status=1)
    assert failure(measure, serving).reason == Reason.ENGINE_DEAD


def test_cancel_is_seen_between_requests(serving: Stage, use: Callable[..., Client]) -> None:
    use(request(), request(), during=lambda _level: serving.recorder.interrupt(Cancelled()))
    with pytest.raises(Cancelled):
        measure(serving.ctx)
    assert [(phase.ended, len(phase.requests)) for phase in serving.recorder.phases] == [(False, 2)]


def test_the_log_is_copied_now_and_then(serving: Stage) -> None:
    look = keep_watch(serving.ctx)
    serving.host.say(UNIT, "a line")
    assert look() is False
    assert serving.recorder.log == []
    serving.clock.wait(LOG_EVERY_S)
    look()
    assert serving.recorder.log == ["a line"]


def test_the_first_request_is_kept_apart(serving: Stage, use: Callable[..., Client]) -> None:
    use(request("w0", ttft_s=30.0), request("w1"), request("w0"))
    warm(serving.ctx)
    shown = [(phase.kind, phase.ended, [one.prompt for one in phase.requests]) for phase in serving.recorder.phases]
    assert shown == [("first_request", True, ["w0"]), ("warmup", True, ["w1", "w0"])]


def test_one_request_is_first_and_last(serving: Stage, use: Callable[..., Client]) -> None:
    use(request("w0"))
    warm(serving.ctx)
    assert [phase.kind for phase in serving.recorder.phases] == ["first_request"]


def test_no_warm_up_asked_for(serving: Stage, use: Callable[..., Client]) -> None:
    serving.spec = make_spec(bench={"warmup": 0})
    client = use()
    warm(serving.ctx)
    assert client.targets == []
    assert serving.recorder.evidence == {"warmup": "none asked for"}


@pytest.mark.parametrize("which", [0, 1])
def test_a_warm_up_that_fails_ends_it_before_anything_is_measured(serving: Stage, use: Callable[..., Client], which: int) -> None:
    results = [request("w0"), request("w1")]
    results[which] = request("w9", ok=False, reason=Reason.CONTEXT_OVERFLOW, error_message="too long")
    use(*results)
    found = failure(warm, serving)
    assert (found.reason, found.outcome, found.evidence) == (Reason.CONTEXT_OVERFLOW, Outcome.INVALID, "too long")
    assert found.detail == "warm-up request w9 failed: too long"
    assert all(phase.ended for phase in serving.recorder.phases), "what was seen stays"


def test_a_warm_up_that_killed_the_engine_names_the_engine(serving: Stage, use: Callable[..., Client]) -> None:
    use(request(ok=False, reason=Reason.CONNECTION_LOST), during=lambda _: serving.host.end(UNIT, exit_status=1))
    assert failure(warm, serving).reason == Reason.ENGINE_DEAD


def test_collect_keeps_what_the_numbers_stand_on(serving: Stage) -> None:
    serving.host.say(UNIT, "last words")
    serving.host.gpu_reading = gpus(70_000)
    collect(serving.ctx)
    facts = serving.recorder.provenance
    assert facts["gpus"] == [{"index": 0, "uuid": "GPU-0", "name": "card", "used_mib": 70_000}]
    assert (facts["driver"], facts["no_gpus"], facts["host"]) == ("570.1", False, {"kernel": "fake"})
    assert serving.recorder.log == ["last words"]


def test_a_run_with_a_failed_request_is_invalid_and_keeps_its_facts(serving: Stage, use: Callable[..., Client]) -> None:
    use(request(), request("maths", ok=False, reason=Reason.CONNECTION_LOST, error_message="reset"))
    measure(serving.ctx)
    found = failure(collect, serving)
    assert (found.reason, found.outcome, found.evidence) == (Reason.CONNECTION_LOST, Outcome.INVALID, "reset")
    assert found.detail == "2 requests failed, the first on prompt maths: reset"
    assert serving.recorder.provenance["host"] == {"kernel": "fake"}


INTERVAL = (
    "INFO 10-22 09:40:00 [metrics.py:96] SpecDecoding metrics: Mean acceptance length: 2.80, Accepted: 27 tokens, Drafted: 75 tokens, "
    "Avg Draft acceptance rate: 36.0%"
)


def test_the_log_speaks_of_speculation_where_no_counters_do(serving: Stage, use: Callable[..., Client]) -> None:
    serving.host.say(UNIT, INTERVAL.replace("27", "99"))  # before anything was measured
    client = use(during=lambda level: serving.host.say(UNIT, INTERVAL if level == 1 else "talk"))
    client.shown = {"speculation": Speculation(status="not_reported", warnings=["counters_not_read"])}
    measure(serving.ctx)
    first, second = (phase.speculation for phase in serving.recorder.phases)
    assert first is not None
    assert second is not None
    assert (first.status, first.source, first.accepted_tokens, first.draft_tokens) == ("on", "log", 27, 75)
    assert (first.mean_acceptance_length, first.comparable) == (2.8, False)
    assert first.warnings == ["counters_not_read", "log_intervals"]
    assert (second.status, second.source) == ("not_reported", None)


def test_counters_weigh_more_than_the_log(serving: Stage, use: Callable[..., Client]) -> None:
    client = use(during=lambda _level: serving.host.say(UNIT, INTERVAL))
    client.shown = {"speculation": Speculation(status="off", source="prometheus")}
    measure(serving.ctx)
    assert {phase.speculation.status for phase in serving.recorder.phases if phase.speculation} == {"off"}


def test_a_phase_that_does_not_count_makes_the_experiment_invalid_and_says_why(serving: Stage, use: Callable[..., Client]) -> None:
    client = use()
    spoilt = phase_run(1, client.results).result.summary.model_copy(
        update={"valid": False, "invalid_reason": Reason.SERVER_RESTARTED_DURING_RUN}
    )
    client.shown = {"summary": spoilt}
    found = failure(measure, serving)
    assert (found.reason, found.outcome) == (Reason.SERVER_RESTARTED_DURING_RUN, Outcome.INVALID)
    assert found.detail.startswith("the measurement at concurrency 1 does not count: ")
    assert client.levels == [1, 2], "every level is measured, and its figures stay to be seen"
    assert serving.recorder.provenance["host"] == {"kernel": "fake"}


@pytest.mark.parametrize(("settled", "warned"), [(True, False), (False, True), (None, False)])
def test_whether_the_engine_had_settled_is_kept(serving: Stage, use: Callable[..., Client], settled: bool | None, warned: bool) -> None:
    use(request("w0"), request("w1")).settled = settled
    warm(serving.ctx)
    assert serving.recorder.evidence["warmup_settled"] is settled
    assert ("warnings" in serving.recorder.evidence) is warned


RUNNER = "INFO 11-30 10:00:00 [gpu_worker.py:1] Using V2 Model Runner"
ENGINE_LINE = (
    "INFO 11-30 10:00:00 [core.py:1] Initializing a V1 LLM engine (v0.32.0) with config: model='m', "
    "speculative_config=SpeculativeConfig(method='ngram', model=None, num_spec_tokens=5)"
)


def test_the_family_of_the_ngram_proposer_is_a_fact(serving: Stage, use: Callable[..., Client], monkeypatch: pytest.MonkeyPatch) -> None:
    use()
    serving.engine.kind = "vllm"
    monkeypatch.setattr(serving.engine, "load_log", VllmLoadLog)
    warm(serving.ctx)
    assert "ngram_family" not in serving.recorder.provenance
    serving.host.say(UNIT, ENGINE_LINE, RUNNER)
    warm(serving.ctx)
    assert serving.recorder.provenance["ngram_family"] == "gpu_v2"


@pytest.mark.parametrize(
    ("engine", "asked"),
    [
        ({"kind": "vllm", "model": "m"}, Asked(configured=False)),
        ({"kind": "vllm", "model": "m", "args": {"spec-method": "ngram"}}, Asked()),
        ({"kind": "vllm", "model": "m", "speculative": {"method": "ngram", "num_speculative_tokens": 3}}, Asked(configured=True, tokens=3)),
        ({"kind": "vllm", "from_unit": "x.service"}, Asked()),
        ({"kind": "vllm", "from_unit": "x.service", "args": {"speculative-config": None}}, Asked(configured=False)),
        ({"kind": "llamacpp", "model": "m"}, Asked(configured=False)),
        ({"kind": "llamacpp", "model": "m", "args": {"spec-default": True}}, Asked()),
        ({"kind": "llamacpp", "model": "m", "speculative": {"method": "none"}}, Asked(configured=False)),
        ({"kind": "endpoint", "base_url": "http://h:1"}, Asked()),
    ],
)
def test_whether_speculation_was_asked_for(serving: Stage, use: Callable[..., Client], engine: dict[str, Any], asked: Asked) -> None:
    assert asked_of(Spec.model_validate({"name": "x", "engine": engine})) == asked
    serving.spec = make_spec(engine=engine)
    client = use()
    measure(serving.ctx)
    assert client.asked[0] == asked
