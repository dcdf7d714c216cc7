from __future__ import annotations

from dataclasses import replace

import pytest

from service.domain.errors import ClaimLost
from service.domain.reasons import Reason
from tests.unit.steps.stage import ADDRESS, UNIT, Stage, gpus, make_spec
from workers.engines.base import Readiness
from workers.hosts.base import PortOwner
from workers.hosts.gpu_reading import GpuReading
from workers.steps.base import Cancelled, HandOver, StepFailed
from workers.steps.load import ENDPOINT_PATIENCE_S, load

NOTICE = (
    "(EngineCore pid=9) INFO 11-30 03:36:34 [shm_broadcast.py:681] No available shared memory broadcast block found in 60 seconds. "
    "This typically happens when some processes are hanging"
)
OLD_NOTICE = "WARNING 03-01 10:00:00 [shm_broadcast.py:406] No available shared memory broadcast block foundin 60 second."
THROUGHPUT = "INFO 11-30 03:36:34 [loggers.py:335] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0"
DRAFTING = "INFO 11-30 03:36:34 [metrics.py:120] SpecDecoding metrics: Mean acceptance length: 4.67"
ACCESS = '(APIServer pid=9) INFO:     127.0.0.1:50162 - "GET /v1/models HTTP/1.1" 503 Service Unavailable'


@pytest.fixture
def loading(stage: Stage) -> Stage:
    stage.start()
    return stage


def failure(stage: Stage) -> StepFailed:
    with pytest.raises(StepFailed) as caught:
        load(stage.ctx)
    return caught.value


def test_ready_once_our_unit_owns_the_port_and_a_token_came_back(loading: Stage) -> None:
    loading.clock.at(2.0, lambda: loading.host.say(UNIT, "PHASE weights_loading 3/8"))
    loading.clock.at(4.0, lambda: loading.host.listen(UNIT, 8001))
    loading.engine.readinesses = [Readiness(False, detail="/v1/models answers 503")]
    load(loading.ctx)
    assert loading.clock.now == 4.5
    assert loading.engine.probed == [ADDRESS, ADDRESS], "nobody is asked while nobody listens"
    assert loading.recorder.evidence["token"] == "ok"
    facts = loading.recorder.provenance
    assert (facts["engine"], facts["engine_version"], facts["served_model"]) == ("fake", "1.0", "m")
    assert loading.recorder.shown == [
        {"event": "load", "phase": "weights_loading", "stage": None, "done": 3, "total": 8, "percent": 37.5},
    ]  # fmt: skip


def test_the_same_position_is_shown_once(loading: Stage) -> None:
    for moment in (1.0, 2.0, 3.0):
        loading.clock.at(moment, lambda: loading.host.say(UNIT, "PHASE weights_loading 3/8"))
    loading.clock.at(4.0, lambda: loading.host.listen(UNIT, 8001))
    load(loading.ctx)
    assert len(loading.recorder.shown) == 1


def test_a_load_that_is_taken_up_counts_by_the_host_s_clock(loading: Stage) -> None:
    loading.recorder.launched_s_ago = 3600
    loading.clock.at(4.0, lambda: loading.host.listen(UNIT, 8001))
    loading.host.states[UNIT] = replace(loading.host.states[UNIT], age_s=100.0)
    load(loading.ctx)
    loading.host.states[UNIT] = replace(loading.host.states[UNIT], age_s=601.0)
    loading.host.port_owners.clear()
    assert failure(loading).reason == Reason.LOAD_TIMEOUT


def test_a_load_taken_up_again_knows_what_was_copied_before(loading: Stage) -> None:
    loading.host.logs[UNIT] = ["PHASE weights_loading 3/8", "more"]
    loading.recorder.log, loading.recorder.log_cursor = ["PHASE weights_loading 3/8"], "invocation1:1"
    loading.spec = make_spec(load={"timeout": 600, "stall": 10})
    assert "in weights_loading at 38 %; " in failure(loading).detail
    assert loading.recorder.log == ["PHASE weights_loading 3/8", "more"], "no line twice"


@pytest.mark.parametrize(
    ("owner", "reason"),
    [
        (PortOwner(8001, 7, "nginx", None), Reason.WRONG_SERVER_ON_PORT),
        (PortOwner(8001, None, None, None), Reason.WRONG_SERVER_ON_PORT),
        (PortOwner(8001, 7, "vllm", "expctl-9-other"), Reason.WRONG_SERVER_ON_PORT),
        (PortOwner(8001, 7, "nginx", None, shared=True), Reason.PORT_SHARED_WITH_ANOTHER_SERVER),
        (PortOwner(8001, 7, "vllm", UNIT, shared=True), Reason.PORT_SHARED_WITH_ANOTHER_SERVER),
    ],
)
def test_a_server_that_is_not_ours_alone_is_never_asked(loading: Stage, owner: PortOwner, reason: Reason) -> None:
    loading.host.port_owners[8001] = owner
    found = failure(loading)
    assert found.reason == reason
    assert "nginx" in found.evidence or "vllm" in found.evidence or found.evidence == "a process of another user"
    assert loading.engine.probed == []


@pytest.mark.parametrize("reason", [Reason.WRONG_SERVER_ON_PORT, Reason.AUTH_FAILED, Reason.REQUEST_REFUSED, Reason.BAD_ARGUMENTS])
def test_what_waiting_cannot_help_ends_the_wait(loading: Stage, reason: Reason) -> None:
    loading.host.listen(UNIT, 8001)
    loading.engine.readiness = Readiness(False, reason=reason, detail="its words")
    found = failure(loading)
    assert (found.reason, found.evidence, loading.clock.now) == (reason, "its words", 0.0)


@pytest.mark.parametrize(
    ("lines", "exit_status", "signal", "reason", "evidence", "how"),
    [
        (["FATAL cuda_out_of_memory out of memory", "exiting"], 1, None, Reason.CUDA_OUT_OF_MEMORY, "out of memory", "(exit status 1)"),
        (["some talk", ""], 1, None, Reason.ENGINE_DEAD, "some talk", "(exit status 1)"),
        ([], None, 9, Reason.ENGINE_DEAD, "", "(signal 9)"),
        (["sh: vllm: not found"], 127, None, Reason.EXEC_FAILED, "sh: vllm: not found", "(exit status 127)"),
        (["FATAL bad_arguments no such flag"], 127, None, Reason.BAD_ARGUMENTS, "no such flag", "(exit status 127)"),
        (["talk"], None, None, Reason.ENGINE_DEAD, "talk", f"{UNIT} ended while loading"),
    ],
)
def test_an_engine_that_ends_says_why(
    loading: Stage, lines: list[str], exit_status: int | None, signal: int | None, reason: Reason, evidence: str, how: str
) -> None:
    def die() -> None:
        loading.host.say(UNIT, *lines)
        loading.host.end(UNIT, exit_status=exit_status, signal=signal)

    loading.clock.at(3.0, die)
    found = failure(loading)
    assert (found.reason, found.evidence) == (reason, evidence)
    assert how in found.detail
    assert loading.recorder.log == lines


def test_one_that_ended_before_this_worker_came_says_why_too(loading: Stage) -> None:
    loading.host.logs[UNIT] = ["FATAL kv_cache_too_small estimated 75312"]
    loading.recorder.log, loading.recorder.log_cursor = ["FATAL kv_cache_too_small estimated 75312"], "invocation1:1"
    loading.host.end(UNIT, exit_status=1)
    found = failure(loading)
    assert (found.reason, found.evidence) == (Reason.KV_CACHE_TOO_SMALL, "estimated 75312")


def test_another_invocation_is_not_ours(loading: Stage) -> None:
    loading.clock.at(3.0, loading.restart_by_somebody)
    assert failure(loading).reason == Reason.SERVER_RESTARTED_DURING_RUN


def test_an_unknown_state_is_no_life(loading: Stage) -> None:
    loading.clock.at(3.0, loading.lose_sight)
    assert failure(loading).reason == Reason.REMOTE_COMMAND_FAILED


@pytest.mark.parametrize(("before_s", "at_s"), [(0.0, 600.5), (590.0, 10.5)])
def test_the_timeout_counts_from_the_launch_across_workers(loading: Stage, before_s: float, at_s: float) -> None:
    loading.recorder.launched_s_ago = before_s
    loading.clock.every(5.0, lambda: loading.host.say(UNIT, f"still here at {loading.clock.now}"), until=700)
    found = failure(loading)
    assert (found.reason, loading.clock.now) == (Reason.LOAD_TIMEOUT, at_s)
    assert found.detail == "not ready after 600 s, in before its first phase"


def test_silence_is_a_stall(loading: Stage) -> None:
    loading.clock.at(20.0, lambda: loading.host.say(UNIT, "PHASE torch_compile"))
    found = failure(loading)
    assert (found.reason, loading.clock.now) == (Reason.NO_PROGRESS, 80.5)
    assert found.detail.startswith("no sign of progress for 60 s, in torch_compile; looked at log: no line that tells progress for ")


@pytest.mark.parametrize("line", [NOTICE, OLD_NOTICE, THROUGHPUT, DRAFTING, ACCESS, ""])
def test_what_an_engine_says_whatever_happens_is_no_progress(loading: Stage, line: str) -> None:
    loading.clock.every(10.0, lambda: loading.host.say(UNIT, line), until=600)
    found = failure(loading)
    assert (found.reason, loading.clock.now) == (Reason.NO_PROGRESS, 60.5)
    assert line in loading.recorder.log, "copied all the same"


def test_a_telling_line_among_idle_talk_counts(loading: Stage) -> None:
    compiled = "Compiling a graph for compile range (1, {}) takes 34.8 s"
    loading.clock.every(50.0, lambda: loading.host.say(UNIT, NOTICE, compiled.format(loading.clock.now), NOTICE), until=600)
    assert failure(loading).reason == Reason.LOAD_TIMEOUT


def test_gpu_memory_that_moves_keeps_a_silent_load_alive(loading: Stage) -> None:
    loading.host.gpu_reading = gpus(0, 1000)

    def fill() -> None:
        loading.host.gpu_reading = gpus(0, (loading.host.gpu_reading.gpus[1].used_mib or 0) + 2000)

    # Every now and then only: the two looks at the limit itself would both miss it.
    loading.clock.every(40.0, fill, until=320)
    found = failure(loading)
    assert found.reason == Reason.NO_PROGRESS
    assert 320 + 60 <= loading.clock.now <= 320 + 60 + 16
    assert len(loading.called("gpus")) < 40, "looked at now and then"


@pytest.mark.parametrize(
    "readings",
    [
        [gpus(1000), gpus(1001), gpus(1002), gpus(1003)],  # a flicker
        [gpus(None), gpus(1000), gpus(None), gpus(2000)],  # never two that say how much
        [GpuReading(known=False, tool="nvidia-smi", why="it hangs")] * 4,
    ],
)
def test_gpu_memory_that_shows_nothing_does_not(loading: Stage, readings: list[GpuReading]) -> None:
    loading.host.gpu_readings, loading.host.gpu_reading = list(readings), readings[-1]
    assert failure(loading).reason == Reason.NO_PROGRESS
    assert loading.clock.now == 60.5


@pytest.mark.parametrize("cause", [Cancelled(), HandOver(), ClaimLost("x")])
def test_cause_to_stop_is_seen_while_it_waits(loading: Stage, cause: Exception) -> None:
    loading.recorder.interrupt(cause, after_s=7.0)
    with pytest.raises(type(cause)):
        load(loading.ctx)
    assert loading.clock.now == 7.0
    assert loading.called("stop_unit") == []


def test_an_endpoint_serves_already(endpoint: Stage) -> None:
    load(endpoint.ctx)
    assert endpoint.host.calls == []
    assert endpoint.recorder.provenance["served_model"] == "m"


def test_an_endpoint_gets_a_little_patience(endpoint: Stage) -> None:
    endpoint.engine.readiness = Readiness(False, detail="connection refused")
    found = failure(endpoint)
    assert (found.reason, found.evidence) == (Reason.CONNECTION_REFUSED, "connection refused")
    assert endpoint.clock.now == ENDPOINT_PATIENCE_S + 0.5
