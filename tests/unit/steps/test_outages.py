"""What was measured while the host was out of reach is measured again."""

from __future__ import annotations

from typing import Any

import pytest

from service.domain.reasons import Reason
from tests.unit.steps.stage import Stage, make_spec, phase_run, request
from workers.bench.run import PhaseRun
from workers.steps import measure as step
from workers.steps.base import StepFailed


def measuring(monkeypatch: pytest.MonkeyPatch, lost: list[bool], kind: str = "outages") -> Stage:
    """`lost`: whether the host is lost, or its wire stands still, during each measurement, in order; afterwards never."""
    stage = Stage(spec=make_spec(bench={"concurrency": [1], "repeat": 1, "warmup": 0}))
    stage.start(listening=True)

    def run(_target: Any, _bench: Any, level: int, **_: Any) -> PhaseRun:
        if lost and lost.pop(0):
            setattr(stage.host, kind, getattr(stage.host, kind) + 1)
        return phase_run(level, [request()])

    monkeypatch.setattr(step, "run_phase_blocking", run)
    return stage


@pytest.mark.parametrize("kind", ["outages", "stalls"])
def test_a_spoilt_level_is_measured_again(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    stage = measuring(monkeypatch, [True, False], kind)
    step.measure(stage.ctx)
    assert [(phase.concurrency, phase.ended) for phase in stage.recorder.phases] == [(1, False), (1, True)]
    assert stage.recorder.evidence["outages@1"] == 1


def test_a_wire_that_never_holds_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = measuring(monkeypatch, [True] * 5)
    with pytest.raises(StepFailed) as caught:
        step.measure(stage.ctx)
    assert caught.value.reason == Reason.CONNECTION_LOST
    assert not any(phase.ended for phase in stage.recorder.phases)


def test_a_wire_that_stands_still_each_time_is_told_and_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = measuring(monkeypatch, [True] * 5, "stalls")
    step.measure(stage.ctx)
    assert [phase.ended for phase in stage.recorder.phases] == [False, False, True]
    assert "stood still" in stage.recorder.evidence["warnings"][0]


def test_clocks_and_temperatures_are_kept_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = measuring(monkeypatch, [])
    states = iter([[{"temperature.gpu": "31"}], [{"temperature.gpu": "66"}]])
    monkeypatch.setattr(stage.host, "gpu_state", lambda: next(states))
    step.measure(stage.ctx)
    assert stage.recorder.provenance["gpu_state@1"] == {"before": [{"temperature.gpu": "31"}], "after": [{"temperature.gpu": "66"}]}
