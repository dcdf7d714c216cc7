"""The steps of a command, on a host in memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from service.domain.reasons import RULES, Reason
from service.domain.spec import Spec
from service.domain.status import Outcome, StepName
from workers.engines.base import HostDefaults
from workers.engines.command import ProgressPattern
from workers.engines.registry import make_engine
from workers.hosts.base import Collected, CollectedFile
from workers.hosts.fake import FakeHost
from workers.hosts.gpu_reading import GpuReading
from workers.runner import COMMAND_STEPS, STEPS, Ending, run, steps_of
from workers.steps.base import Cancelled, HandOver, StepContext
from workers.steps.command import TOO_LONG
from workers.steps.fake import FakeClock, FakeRecorder

UNIT = "expctl-7-train"


class Rig:
    """One command on a fake host; `script` what happens at which second."""

    def __init__(self, **engine: Any) -> None:
        self.clock, self.host = FakeClock(), FakeHost()
        self.recorder = FakeRecorder(self.clock)
        self.spec = Spec.model_validate({"name": "train", "engine": {"kind": "command", "run": ["train"]} | engine})

    def ctx(self) -> StepContext:
        engine = make_engine(self.spec, HostDefaults(8001, {}), {})
        return StepContext(7, self.spec, UNIT, 0, "", self.host, engine, self.recorder, self.clock)

    def run(self) -> Ending:
        return run(self.ctx(), self.recorder)

    def ends(self, at: float, exit_status: int | None = 0, **how: Any) -> None:
        self.clock.at(at, lambda: self.host.end(UNIT, exit_status, **how))

    def says(self, at: float, *lines: str) -> None:
        self.clock.at(at, lambda: self.host.say(UNIT, *lines))

    def started(self) -> int:
        return sum(call == "start_unit" for call, _ in self.host.calls)


def test_the_steps_are_those_of_the_kind() -> None:
    assert steps_of(Rig().spec) is COMMAND_STEPS
    assert steps_of(Spec.model_validate({"name": "x", "engine": {"kind": "vllm", "model": "m"}})) is STEPS


def test_exit_status_0_is_success() -> None:
    rig = Rig(progress=r"(\d+)%", artifacts=["*.bin"])
    rig.host.collected["7"] = Collected("/artifacts/7", (CollectedFile("a.bin", 3, "ff"),), ("*.txt matches no file",))
    rig.says(1, "10%", "20%")
    rig.says(9, "90%")
    rig.ends(10)
    assert rig.run() == Ending(Outcome.SUCCEEDED)
    assert rig.recorder.begun == [StepName.CLEAR, StepName.LAUNCH, StepName.MEASURE, StepName.COLLECT]
    assert [shown["percent"] for shown in rig.recorder.shown] == [20, 90]
    assert rig.recorder.log == ["10%", "20%", "90%"]
    assert rig.recorder.provenance["command"] == {"exit_status": 0, "signal": None, "timed_out": False, "warnings": []}
    assert rig.recorder.provenance["artifacts"] == [{"path": "a.bin", "size": 3, "sha256": "ff"}]
    assert rig.recorder.provenance["artifact_warnings"] == ["*.txt matches no file"]
    assert rig.host.definitions[UNIT].cwd == f"/work/{UNIT}"
    assert ("gpus", "") not in rig.host.calls


@pytest.mark.parametrize(
    ("exit_status", "signal", "words"), [(3, None, "exit status 3"), (None, 9, "signal 9"), (None, None, "how is not known")]
)
def test_anything_else_is_a_failure_that_keeps_its_files(exit_status: int | None, signal: int | None, words: str) -> None:
    rig = Rig(artifacts=["*.bin"])
    rig.says(1, *(f"line {number}" for number in range(30)), "", "Traceback: no luck")
    rig.ends(2, exit_status, signal=signal)
    ending = rig.run()
    assert (ending.outcome, ending.reason) == (Outcome.FAILED, Reason.COMMAND_FAILED)
    assert words in ending.detail
    assert ending.evidence.splitlines()[0] == "line 21"
    assert ending.evidence.splitlines()[-1] == "Traceback: no luck"
    assert rig.recorder.provenance["artifacts_folder"] == "/artifacts/7"
    assert rig.recorder.begun[-1] == StepName.MEASURE


def test_the_last_words_may_come_after_the_end() -> None:
    rig = Rig()
    rig.ends(2, 1)
    rig.says(2.3, "Traceback: no luck")
    assert rig.run().evidence == "Traceback: no luck"


def test_files_that_cannot_be_kept_do_not_hide_why_a_command_failed() -> None:
    rig = Rig(artifacts=["*"])
    rig.host.fail("collect_files", Reason.DISK_FULL, "full", times=2)
    rig.ends(2, 1)
    assert rig.run().reason == Reason.COMMAND_FAILED
    assert rig.recorder.provenance["artifact_warnings"] == ["full"]
    good = Rig(artifacts=["*"])
    good.host.fail("collect_files", Reason.DISK_FULL, "full")
    good.ends(2, 0)
    assert good.run().reason == Reason.DISK_FULL


def test_a_command_that_takes_too_long_is_ended() -> None:
    rig = Rig(timeout="1h", artifacts=["*"])
    ending = rig.run()
    assert ending.reason == Reason.COMMAND_TIMEOUT
    assert 3600 < rig.clock.now < 3602
    assert ("stop_unit", UNIT) in rig.host.calls
    assert rig.recorder.log == [TOO_LONG]
    assert "artifacts" in rig.recorder.provenance


def test_a_worker_lost_while_it_ended_a_command_does_not_make_its_end_a_success() -> None:
    """The command catches SIGTERM and ends with 0: only the log still says why it ended."""
    rig = Rig(timeout="1h")
    rig.host.fail("stop_unit", Reason.CONNECTION_LOST, times=2)
    rig.run()
    rig.host.end(UNIT, 0)
    assert rig.run().reason == Reason.COMMAND_TIMEOUT


def test_one_that_ended_in_time_while_nobody_looked_is_judged_by_its_exit_status() -> None:
    rig = Rig(timeout="1h")
    rig.recorder.interrupt(HandOver(), after_s=5)
    with pytest.raises(HandOver):
        rig.run()
    rig.host.end(UNIT, 0)
    rig.clock.now = 90_000
    assert rig.run() == Ending(Outcome.SUCCEEDED)
    assert rig.started() == 1


@pytest.mark.parametrize("still_runs", [True, False])
def test_a_command_whose_start_was_not_written_down_is_not_started_again(*, still_runs: bool) -> None:
    rig = Rig()
    rig.recorder.begun, rig.recorder.done = [], {StepName.CLEAR}
    real = rig.recorder.note

    def cut(**values: Any) -> None:
        if rig.started():
            raise HandOver
        real(**values)

    rig.recorder.note = cut  # type: ignore[method-assign, assignment]
    with pytest.raises(HandOver):
        rig.run()
    rig.recorder.note = real  # type: ignore[method-assign]
    if still_runs:
        rig.ends(5)
    else:
        rig.host.end(UNIT, 0)
    assert rig.run() == Ending(Outcome.SUCCEEDED)
    assert rig.started() == 1


def test_a_command_that_was_not_yet_started_is_started() -> None:
    rig = Rig()
    rig.host.fail("start_unit", Reason.CLAIM_LOST)
    rig.run()
    rig.recorder.begun.clear()
    rig.ends(rig.clock.now + 1)
    assert rig.run() == Ending(Outcome.SUCCEEDED)


def test_another_attempt_starts_it_again() -> None:
    rig = Rig()
    rig.ends(1, 1)
    rig.run()
    second = Rig()
    second.host = rig.host
    second.ends(1)
    assert second.run() == Ending(Outcome.SUCCEEDED)
    assert rig.started() == 2


def test_one_started_by_somebody_else_is_not_ours() -> None:
    rig = Rig()
    rig.recorder.interrupt(HandOver(), after_s=2)
    with pytest.raises(HandOver):
        rig.run()
    rig.host.end(UNIT)
    rig.host.start_unit(rig.host.definitions[UNIT])
    ending = rig.run()
    assert (ending.reason, "somebody else" in ending.detail) == (Reason.COMMAND_FAILED, True)


def test_cancel_ends_it() -> None:
    rig = Rig(artifacts=["*"])
    rig.recorder.interrupt(Cancelled(), after_s=3)
    assert rig.run().outcome == Outcome.CANCELLED
    assert rig.host.states[UNIT].signal == 15


def test_what_it_left_running_is_ended_before_files_are_kept() -> None:
    rig = Rig(artifacts=["*"])
    rig.ends(1, 0, left_over=(77,))
    assert rig.run() == Ending(Outcome.SUCCEEDED)
    names = [call for call, _ in rig.host.calls]
    assert names.index("stop_unit") < names.index("collect_files")
    assert rig.recorder.evidence["left_over_pids"] == [77]


def test_gpus_are_proven_free_only_where_asked_for() -> None:
    unknown = GpuReading(known=False, tool="nvidia-smi", why="does not answer")
    rig = Rig(gpus=[0])
    rig.host.gpu_reading = unknown
    assert rig.run().reason == Reason.GPU_STATE_UNKNOWN
    assert rig.started() == 0
    free = Rig()
    free.host.gpu_reading = unknown
    free.ends(1)
    assert free.run() == Ending(Outcome.SUCCEEDED)


def test_a_slow_pattern_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.steps.command.ProgressPattern", partial(ProgressPattern, search_s=0.5))
    rig = Rig(progress=r"(a|aa)+$")
    rig.says(1, "a" * 200 + "!")
    rig.ends(2)
    assert rig.run() == Ending(Outcome.SUCCEEDED)
    assert "no longer looked for" in rig.recorder.provenance["command"]["warnings"][0]


def test_the_reasons_have_rules() -> None:
    assert all(RULES[reason].retry.times == 0 for reason in (Reason.COMMAND_FAILED, Reason.COMMAND_TIMEOUT))
