from __future__ import annotations

from collections.abc import Callable

import pytest

from service.domain.errors import ClaimLost
from service.domain.reasons import Reason
from service.domain.status import Outcome, StepName
from tests.unit.steps.stage import UNIT, Stage
from workers import runner
from workers.runner import Ending, run
from workers.steps.base import Cancelled, HandOver, StepContext, StepFailed

Body = Callable[[StepContext], None]
ORDER = ["clear", "launch", "load", "warm", "measure", "collect"]


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    made.start()
    return made


@pytest.fixture
def did(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Steps that only note that they ran."""
    order: list[str] = []
    bodies: list[tuple[StepName, Body]] = [(name, lambda _ctx, name=name: order.append(name.value)) for name, _ in runner.STEPS]  # type: ignore[misc]
    monkeypatch.setattr(runner, "STEPS", tuple(bodies))
    return order


@pytest.fixture
def fail_in(monkeypatch: pytest.MonkeyPatch, did: list[str]) -> Callable[[StepName, Exception], None]:
    def install(name: StepName, error: Exception) -> None:
        def body(_ctx: StepContext) -> None:
            did.append(name)
            raise error

        monkeypatch.setattr(runner, "STEPS", tuple((at, body if at == name else step) for at, step in runner.STEPS))

    return install


def unit_lives(stage: Stage) -> bool:
    return stage.host.unit(UNIT).phase == "active"


def test_the_steps_in_order_and_then_the_unit_is_stopped(stage: Stage, did: list[str]) -> None:
    stage.host.say(UNIT, "said on the way")
    assert run(stage.ctx, stage.recorder) == Ending(Outcome.SUCCEEDED)
    assert did == ORDER
    assert stage.recorder.begun == list(StepName)
    assert not unit_lives(stage)
    assert stage.recorder.log == ["said on the way"]


def test_finished_steps_are_skipped_and_a_cut_one_is_taken_up(stage: Stage, did: list[str]) -> None:
    stage.recorder.done = {StepName.CLEAR, StepName.LAUNCH}
    stage.recorder.begun = [StepName.CLEAR, StepName.LAUNCH, StepName.LOAD]
    run(stage.ctx, stage.recorder)
    assert did == ["load", "warm", "measure", "collect"]


def test_a_step_that_fails_is_begun_and_not_ended(stage: Stage, did: list[str], fail_in: Callable[[StepName, Exception], None]) -> None:
    fail_in(StepName.LOAD, StepFailed(Reason.NO_PROGRESS, "detail", "evidence"))
    assert run(stage.ctx, stage.recorder) == Ending(Outcome.FAILED, Reason.NO_PROGRESS, "detail", "evidence")
    assert did == ["clear", "launch", "load"]
    assert stage.recorder.done == {StepName.CLEAR, StepName.LAUNCH}
    assert not unit_lives(stage)


def test_the_outcome_is_the_reasons(stage: Stage, fail_in: Callable[[StepName, Exception], None]) -> None:
    fail_in(StepName.COLLECT, StepFailed(Reason.TRUNCATED_STREAM, "detail"))
    assert run(stage.ctx, stage.recorder).outcome == Outcome.INVALID


def test_cancel_stops_the_unit(stage: Stage, did: list[str]) -> None:
    stage.recorder.interrupt(Cancelled())
    assert run(stage.ctx, stage.recorder) == Ending(Outcome.CANCELLED, Reason.CANCELLED_BY_USER)
    assert did == [], "asked before the step, not only within it"
    assert not unit_lives(stage)


@pytest.mark.parametrize("cause", [HandOver(), ClaimLost("x")])
@pytest.mark.parametrize("step", list(StepName))
def test_who_hands_over_or_lost_the_claim_leaves_the_unit_running(
    stage: Stage, fail_in: Callable[[StepName, Exception], None], cause: Exception, step: StepName
) -> None:
    fail_in(step, cause)
    with pytest.raises(type(cause)):
        run(stage.ctx, stage.recorder)
    assert unit_lives(stage)
    assert stage.called("stop_unit") == []


@pytest.mark.parametrize("cause", [None, StepFailed(Reason.NO_PROGRESS, "detail"), Cancelled()])
def test_a_worker_that_was_frozen_past_its_lease_stops_nothing(
    stage: Stage, fail_in: Callable[[StepName, Exception], None], cause: Exception | None
) -> None:
    if cause is not None:
        fail_in(StepName.LOAD, cause)
    stage.recorder.lost = True
    with pytest.raises(ClaimLost):
        run(stage.ctx, stage.recorder)
    assert unit_lives(stage)


def test_the_hosts_failure_is_the_experiments(stage: Stage, did: list[str]) -> None:
    stage.recorder.done = {StepName.CLEAR}
    stage.host.fail("read_log", Reason.DISK_FULL, "/var")
    ending = run(stage.ctx, stage.recorder)
    assert did[0] == "launch"
    assert (ending.outcome, ending.reason, ending.evidence) == (Outcome.FAILED, Reason.DISK_FULL, "/var")


@pytest.mark.parametrize(
    "before", [None, StepFailed(Reason.BAD_ARGUMENTS, "detail"), StepFailed(Reason.TRUNCATED_STREAM, "detail"), Cancelled()]
)
def test_an_engine_that_cannot_be_stopped_is_the_worse_news(
    stage: Stage, did: list[str], fail_in: Callable[[StepName, Exception], None], before: Exception | None
) -> None:
    del did
    if before is not None:
        fail_in(StepName.MEASURE, before)
    stage.host.fail("stop_unit", Reason.UNKILLABLE_PROCESS, "pid 9 in state D")
    assert run(stage.ctx, stage.recorder) == Ending(Outcome.FAILED, Reason.UNKILLABLE_PROCESS, "pid 9 in state D", "pid 9 in state D")


def test_nothing_is_stopped_for_an_endpoint(did: list[str]) -> None:
    stage = Stage()
    stage.engine.owns_process = False
    assert run(stage.ctx, stage.recorder).outcome == Outcome.SUCCEEDED
    assert did == ORDER
    assert stage.host.calls == []


def test_the_real_steps_end_to_end_up_to_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    monkeypatch.setattr(runner, "STEPS", runner.STEPS[:3])
    stage.clock.at(1.0, lambda: stage.host.listen(UNIT, 8001))
    assert run(stage.ctx, stage.recorder).outcome == Outcome.SUCCEEDED
    assert stage.recorder.done == {StepName.CLEAR, StepName.LAUNCH, StepName.LOAD}
    assert not unit_lives(stage)
