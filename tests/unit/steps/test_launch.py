from __future__ import annotations

import pytest

from service.domain.errors import ClaimLost
from service.domain.reasons import Reason
from service.domain.status import Outcome
from tests.unit.steps.stage import UNIT, Stage
from workers.steps.base import HandOver, StepFailed
from workers.steps.launch import launch, without_keys


def failure(stage: Stage) -> StepFailed:
    with pytest.raises(StepFailed) as caught:
        launch(stage.ctx)
    return caught.value


def test_an_endpoint_starts_nothing(endpoint: Stage) -> None:
    launch(endpoint.ctx)
    assert endpoint.host.calls == []


def test_starts_and_records_the_invocation(stage: Stage) -> None:
    launch(stage.ctx)
    definition = stage.host.definitions[UNIT]
    assert (definition.argv, definition.env, definition.cwd) == (("fake-engine", "serve"), {"FAKE": "1"}, None)
    assert (stage.recorder.unit, stage.recorder.invocation_id) == (UNIT, "invocation1")
    assert stage.recorder.evidence == {
        "argv": ["fake-engine", "serve"], "pid": 1001, "port": 8001, "seen_argv": ["fake-engine", "serve"],
        "boot_id": None, "from_unit": None, "changes": [], "warnings": [],
    }  # fmt: skip


def test_a_secret_of_the_environment_is_not_kept(stage: Stage) -> None:
    launch(stage.ctx)
    assert "FAKE" not in repr(stage.recorder.evidence)


@pytest.mark.parametrize("recorded", [False, True])
def test_a_running_unit_is_adopted(stage: Stage, *, recorded: bool) -> None:
    """Not recorded: the worker died between the start and writing it down."""
    state = stage.start(recorded=recorded)
    launch(stage.ctx)
    assert stage.host.unit(UNIT) == state
    assert stage.recorder.invocation_id == state.invocation_id


def test_a_recorded_unit_is_not_started_over(stage: Stage) -> None:
    stage.start()
    stage.host.calls.clear()
    launch(stage.ctx)
    assert stage.called("start_unit") == []


def test_a_running_unit_with_another_definition_is_refused(stage: Stage) -> None:
    stage.start(recorded=False)
    stage.engine.argv = ("fake-engine", "serve", "--other")
    assert failure(stage).reason == Reason.STALE_UNIT_DEFINITION
    assert stage.recorder.invocation_id is None


def test_one_that_ended_with_the_recorded_invocation_is_not_started_again(stage: Stage) -> None:
    stage.start()
    stage.host.end(UNIT, exit_status=1)
    stage.host.calls.clear()
    launch(stage.ctx)
    assert stage.called("start_unit") == []


@pytest.mark.parametrize("ended", [False, True])
def test_another_invocation_is_not_ours(stage: Stage, *, ended: bool) -> None:
    stage.start()
    stage.restart_by_somebody()
    if ended:
        stage.host.end(UNIT)
    found = failure(stage)
    assert (found.reason, found.outcome) == (Reason.SERVER_RESTARTED_DURING_RUN, Outcome.INVALID)
    assert stage.recorder.invocation_id == "invocation1", "what was recorded stays"


def test_one_that_ended_before_this_attempt_is_started(stage: Stage) -> None:
    stage.start(recorded=False)
    stage.host.end(UNIT)
    launch(stage.ctx)
    assert stage.recorder.invocation_id == "invocation2"


def test_one_that_the_host_knows_no_more_is_started(stage: Stage) -> None:
    stage.recorder.invocation_id = "before the reboot"
    launch(stage.ctx)
    assert stage.recorder.invocation_id == "invocation1"


def test_an_unknown_state_starts_nothing(stage: Stage) -> None:
    stage.lose_sight()
    assert failure(stage).reason == Reason.REMOTE_COMMAND_FAILED
    assert stage.called("start_unit") == []


@pytest.mark.parametrize("reason", [Reason.EXEC_FAILED, Reason.ORPHAN_PROCESS, Reason.DISK_FULL, Reason.UNIT_SYNTAX])
def test_the_hosts_reason_is_the_steps(stage: Stage, reason: Reason) -> None:
    stage.host.fail("start_unit", reason, "its words")
    found = failure(stage)
    assert (found.reason, found.evidence) == (reason, "its words")


@pytest.mark.parametrize("cause", [ClaimLost("x"), HandOver()])
def test_it_is_asked_for_cause_to_stop_before_the_start(stage: Stage, cause: Exception) -> None:
    stage.recorder.interrupt(cause)
    with pytest.raises(type(cause)):
        launch(stage.ctx)
    assert stage.called("start_unit") == []


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["vllm", "--api-key", "sesame", "--port", "1"], ["vllm", "--api-key", "***", "--port", "1"]),
        (["vllm", "--api-key=sesame"], ["vllm", "--api-key=***"]),
        (["vllm", "--api-key"], ["vllm", "--api-key"]),
        ([], []),
    ],
)
def test_an_api_key_in_a_command_line_is_not_kept(argv: list[str], shown: list[str]) -> None:
    assert without_keys(argv) == shown
