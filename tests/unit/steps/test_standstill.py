"""A load that stands still is told of once, at half its limit, before it is given up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from service.domain.reasons import Reason
from tests.unit.steps.stage import UNIT, Stage, gpus, make_spec
from workers.hosts.base import Usage
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
    stage.clock.every(20.0, lambda: stage.host.say(UNIT, f"a word at {stage.clock.now}"), until=200.0)
    stage.clock.at(200.0, lambda: stage.host.listen(UNIT, 8001))
    load(stage.ctx)
    assert stalled(stage) == []


def limited(stage: Stage, stall: float = 60) -> None:
    stage.start()
    stage.spec = make_spec(load={"timeout": 6000, "stall": stall})


def use(stage: Stage, cpu_s: float | None, read_bytes: int | None) -> None:
    stage.host.states[UNIT] = replace(stage.host.states[UNIT], used=Usage(cpu_s, read_bytes))


def given_up(stage: Stage) -> tuple[float, StepFailed]:
    with pytest.raises(StepFailed) as caught:
        load(stage.ctx)
    assert caught.value.reason == Reason.NO_PROGRESS
    return stage.clock.now, caught.value


@pytest.mark.parametrize(("phase", "after_s"), [("torch_compile", 180.0), ("cuda_graph_capture", 180.0), ("weights_loading", 60.0)])
def test_a_phase_that_computes_may_be_silent_longer_but_not_for_ever(stage: Stage, phase: str, after_s: float) -> None:
    """In a phase whose work is to compute, processors say that it lives; elsewhere processes that wait keep them busy, too."""
    limited(stage)
    stage.host.say(UNIT, f"PHASE {phase}")
    stage.clock.every(1.0, lambda: use(stage, 2.0 * stage.clock.now, 0), until=900.0)
    at, found = given_up(stage)
    assert after_s <= at <= after_s + 2
    assert "processors: 2.0 kept busy" in found.detail


def test_a_phase_that_only_polls_does_not_compute(stage: Stage) -> None:
    limited(stage)
    stage.host.say(UNIT, "PHASE torch_compile")
    stage.clock.every(1.0, lambda: use(stage, 0.1 * stage.clock.now, 0), until=900.0)
    assert given_up(stage)[0] <= 62.0


def test_what_is_read_is_a_sign(stage: Stage) -> None:
    """A model that comes in silence from a slow disk, and then no more."""
    limited(stage)
    stage.clock.every(1.0, lambda: use(stage, 0.0, int(2**20 * min(stage.clock.now, 300.0))), until=900.0)
    at, found = given_up(stage)
    assert 345.0 <= at <= 362.0
    assert "; read: " in found.detail


def test_a_trickle_is_none(stage: Stage) -> None:
    limited(stage)
    stage.clock.every(1.0, lambda: use(stage, 0.0, int(1000 * stage.clock.now)), until=900.0)
    assert given_up(stage)[0] <= 62.0


def test_a_phase_that_was_long_before_is_given_that_long(stage: Stage) -> None:
    limited(stage)
    stage.recorder.longest = {"torch_compile": 400.0, None: 5.0}
    stage.clock.at(30.0, lambda: stage.host.say(UNIT, "PHASE torch_compile"))
    at, found = given_up(stage)
    assert 630.0 <= at <= 632.0
    assert "history: this phase took up to 7 min here" in found.detail
    [told] = stalled(stage)
    assert told["limit_s"] == 600.0
    assert told["silent_s"] > 300.0


@pytest.mark.parametrize(
    "line",
    [
        "INFO 11-30 03:{:02}:00 [core_client.py:1034] Waiting for 1 local, 0 remote core engine proc(s) to start.",
        "srv  log_server_r: done request: GET /health 127.0.0.{} 503",
        '(APIServer pid=9) INFO:     127.0.0.1:501{:02} - "GET /health HTTP/1.1" 503 Service Unavailable',
        "INFO 11-30 03:{:02}:00 [utils.py:12] the same words again and again",
    ],
)
def test_what_is_only_repeated_is_no_progress(stage: Stage, line: str) -> None:
    limited(stage)
    stage.clock.every(10.0, lambda: stage.host.say(UNIT, line.format(int(stage.clock.now) // 10 % 60)), until=900.0)
    assert given_up(stage)[0] <= 72.0


def test_both_the_warning_and_the_failure_say_what_was_looked_at(stage: Stage) -> None:
    limited(stage)
    stage.host.gpu_reading = gpus(618, 618)
    stage.host.say(UNIT, "PHASE torch_compile", "INFO 11-30 03:36:34 [backends.py:1] Dynamo bytecode transform time: 8.21 s")
    stage.clock.every(1.0, lambda: use(stage, 3.0, 5), until=100.0)
    _, found = given_up(stage)
    [told] = stalled(stage)
    assert told["looked_at"] == {
        "log": "no line that tells progress for 30 s; the last: Dynamo bytecode transform time: 8.21 s",
        "gpu memory": "unchanged at 618, 618 MiB",
        "read": "0 MiB in 30 s",
        "processors": "0.0 kept busy",
        "history": "no such phase was seen here",
    }
    assert found.evidence == "Dynamo bytecode transform time: 8.21 s"
    assert "gpu memory: unchanged at 618, 618 MiB" in found.detail


def test_what_a_process_takes_with_it_when_it_ends_is_no_progress(stage: Stage) -> None:
    limited(stage)
    stage.clock.at(1.0, lambda: use(stage, 100.0, 2**34))
    stage.clock.at(20.0, lambda: use(stage, 1.0, 2**20))
    assert given_up(stage)[0] <= 62.0
