"""The look before the start, as the first steps take it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.domain.reasons import Reason
from service.domain.spec import Spec
from tests.unit.steps.stage import UNIT, Stage
from workers.preflight.findings import Report, doubtful, good, wrong
from workers.steps.base import StepFailed
from workers.steps.clear import clear
from workers.steps.command import clear_for_command

BAD = Report(
    (
        good("program", "/opt/vllm/bin/vllm"),
        wrong("arguments", Reason.BAD_ARGUMENTS, "this version has no --x; instead: --y", "its help does not list --x"),
        wrong("disk", Reason.DISK_FULL, "only 1 MiB are free at /data"),
    )
)


def test_what_can_only_fail_ends_before_anything_is_touched(stage: Stage) -> None:
    stage.start("expctl-2-other", recorded=False)
    with pytest.raises(StepFailed) as caught:
        clear(replace(stage.ctx, preflight=lambda: BAD))
    assert (caught.value.reason, caught.value.evidence) == (Reason.BAD_ARGUMENTS, "its help does not list --x")
    assert "this version has no --x; instead: --y; only 1 MiB are free" in caught.value.detail
    assert [one["verdict"] for one in stage.recorder.evidence["preflight"]] == ["good", "wrong", "wrong"]
    assert stage.called("stop_unit") == []


def test_a_command_without_gpus_is_looked_at_as_well() -> None:
    stage = Stage(spec=Spec.model_validate({"name": "x", "engine": {"kind": "command", "run": "true"}}))
    with pytest.raises(StepFailed):
        clear_for_command(replace(stage.ctx, preflight=lambda: BAD))


def test_what_is_in_doubt_is_noted_and_started(stage: Stage) -> None:
    clear(replace(stage.ctx, preflight=lambda: Report((doubtful("GPU memory", "it may not fit"),))))
    assert [one["text"] for one in stage.recorder.evidence["preflight"]] == ["it may not fit"]
    assert stage.recorder.evidence["port"] == 8001


def test_one_that_was_started_is_not_looked_at_again(stage: Stage) -> None:
    stage.start()
    clear(replace(stage.ctx, preflight=lambda: BAD))
    stage.host.end(UNIT)
    clear(replace(stage.ctx, preflight=lambda: BAD))
    assert "preflight" not in stage.recorder.evidence
