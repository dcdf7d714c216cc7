"""A load that stands still is told of once, at half its limit, before it is given up."""

from __future__ import annotations

from typing import Any

import pytest

from service.domain.reasons import Reason
from tests.unit.steps.stage import UNIT, Stage, make_spec
from workers.steps.base import StepFailed
from workers.steps.load import load


def stalled(stage: Stage) -> list[dict[str, Any]]:
    return [one for one in stage.recorder.shown if one["event"] == "stalled"]


def test_a_standstill_is_told_of_once_and_then_given_up(stage: Stage) -> None:
    stage.start()
    stage.spec = make_spec(load={"timeout": 600, "stall": 60})
    stage.clock.at(5.0, lambda: stage.host.say(UNIT, "PHASE weights_loading 3/8"))
    seen: list[float] = []
    stage.clock.every(1.0, lambda: seen.append(stage.clock.now) if stalled(stage) and not seen else None, until=100.0)
    with pytest.raises(StepFailed) as caught:
        load(stage.ctx)
    assert caught.value.reason == Reason.NO_PROGRESS
    [told] = stalled(stage)
    assert (told["where"], told["limit_s"], told["percent"]) == ("weights_loading at 38 %", 60.0, 37.5)
    assert 30.0 < told["silent_s"] < 32.0
    assert 35.0 < seen[0] < 38.0


def test_one_that_moves_again_and_stands_still_again_is_told_of_twice(stage: Stage) -> None:
    stage.start()
    stage.spec = make_spec(load={"timeout": 600, "stall": 60})
    stage.clock.at(40.0, lambda: stage.host.say(UNIT, "PHASE weights_loading 3/8"))
    stage.clock.at(80.0, lambda: stage.host.listen(UNIT, 8001))
    load(stage.ctx)
    assert len(stalled(stage)) == 2


def test_one_that_moves_is_not_told_of(stage: Stage) -> None:
    stage.start()
    stage.spec = make_spec(load={"timeout": 600, "stall": 60})
    stage.clock.every(20.0, lambda: stage.host.say(UNIT, "a word"), until=200.0)
    stage.clock.at(200.0, lambda: stage.host.listen(UNIT, 8001))
    load(stage.ctx)
    assert stalled(stage) == []
