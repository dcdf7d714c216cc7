"""Why a unit that was launched does not live, where the host knows better than the engine's log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.domain.reasons import Reason
from tests.unit.steps.stage import UNIT, Stage
from workers.hosts.base import UnitPhase, UnitState
from workers.steps.base import StepContext, StepFailed, last_telling, why_ended

PROD = "vllm-prod.service"


def context(stage: Stage) -> StepContext:
    return replace(stage.ctx, production=(PROD,))


@pytest.mark.parametrize(
    ("state", "reason", "words"),
    [
        (UnitState(UNIT, UnitPhase.ENDED, result="oom-kill", signal=9), Reason.HOST_OUT_OF_MEMORY, "(signal 9, oom-kill)"),
        (UnitState(UNIT, UnitPhase.ENDED, result="timeout", signal=9), Reason.SYSTEMD_START_TIMEOUT, "timeout"),
        (UnitState(UNIT, UnitPhase.ENDED, result="start-limit-hit"), Reason.CRASH_LOOP, "start-limit-hit"),
        (UnitState(UNIT, UnitPhase.ENDED, result="exit-code", exit_status=203), Reason.EXEC_FAILED, "exit status 203"),
        (UnitState(UNIT, UnitPhase.ENDED, result="exit-code", exit_status=1), None, "exit status 1"),
        (UnitState(UNIT, UnitPhase.ENDED, result="exit-code", signal=15), None, "signal 15"),
        (UnitState(UNIT, UnitPhase.ENDED, result="exit-code"), Reason.EXEC_FAILED, "ExecStartPre="),
        (UnitState(UNIT, UnitPhase.ENDED, result="success", exit_status=0), None, "exit status 0"),
        (UnitState(UNIT, UnitPhase.NOT_FOUND), None, "is there no longer"),
    ],
)
def test_the_service_manager_s_own_word(state: UnitState, reason: Reason | None, words: str) -> None:
    found, how = why_ended(context(Stage()), state)
    assert found == reason
    assert words in how


@pytest.mark.parametrize(
    "lines",
    [
        ["x.service: Failed to load environment files: none", "x.service: Failed to run 'start-pre' task: none", "Failed to start x."],
        ["x.service: Control process exited, code=exited", "x.service: Failed with result 'exit-code'.", "x.service: Consumed 1s CPU."],
        ["ValueError: Failed to start the engine", "  "],
        ["Stopped x.service."],
    ],
)
def test_the_line_that_tells_why_stands_before_what_sums_up(lines: list[str]) -> None:
    assert last_telling(lines) == lines[0]


def test_a_reboot_comes_before_everything() -> None:
    stage = Stage()
    stage.recorder.launch_evidence = {"boot_id": "before"}
    stage.host.states[PROD] = UnitState(PROD, UnitPhase.ACTIVE)
    found, _ = why_ended(context(stage), UnitState(UNIT, UnitPhase.NOT_FOUND, boot_id="after"))
    assert found == Reason.HOST_REBOOTED


def test_production_that_was_started_ends_ours() -> None:
    stage = Stage()
    stage.recorder.launch_evidence = {"boot_id": "same"}
    stage.host.states[PROD] = UnitState(PROD, UnitPhase.ACTIVE)
    found, how = why_ended(context(stage), UnitState(UNIT, UnitPhase.ENDED, signal=15, boot_id="same"))
    assert (found, PROD in how) == (Reason.PRODUCTION_STARTED_BY_HAND, True)


def test_one_that_was_restarted_by_the_service_manager_is_another_server() -> None:
    stage = Stage()
    state = stage.start()
    stage.host.states[UNIT] = replace(state, restarts=1)
    with pytest.raises(StepFailed) as caught:
        stage.ctx.living_unit()
    assert caught.value.reason == Reason.SERVER_RESTARTED_DURING_RUN
