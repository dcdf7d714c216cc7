"""Giving back what was parked, on a host in memory; only the look at the server's API is replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from service.domain.events import EventType
from service.domain.reasons import Reason
from tests.unit.workers.production_rig import ADDRESS, PROD, Rig, living, title
from workers import serving
from workers.engines.base import Readiness
from workers.hosts.base import DeadManFired, HostError, UnitDefinition, UnitPhase
from workers.hosts.gpu_reading import GpuHolder, GpuMemory, GpuReading
from workers.production import GPU_PATIENCE_S
from workers.steps.base import HandOver


def test_it_comes_back_and_is_proven(rig: Rig) -> None:
    rig.production.park()
    rig.book.time += 3600
    rig.production.restore()
    assert living(rig) == (PROD,)
    kind, data = rig.book.told[-1]
    assert kind == EventType.PRODUCTION_RESTORED
    assert (data["units"], data["away_s"], data["proof"], data["changed"]) == ([PROD], 3600.0, {PROD: "m answered"}, [])
    assert rig.host.armed is None


def test_restoring_that_was_cut_is_taken_up(rig: Rig) -> None:
    rig.production.park()
    rig.answers[f"{ADDRESS}:8000/v1"] = Readiness(False, detail="503 loading")
    rig.book.began, rig.book.stop_after_s = rig.book.time, 20.0
    with pytest.raises(HandOver):
        rig.production.restore()
    assert (rig.book.phase, rig.host.armed is not None) == ("restoring", True)
    rig.book.stop_after_s = None
    del rig.answers[f"{ADDRESS}:8000/v1"]
    rig.production.restore()
    assert rig.book.kinds().count(EventType.PRODUCTION_RESTORED) == 1
    assert rig.host.armed is None


def test_ours_end_before_production_starts(rig: Rig) -> None:
    rig.production.park()
    rig.host.start_unit(UnitDefinition("expctl-1-x", ("x",)))
    rig.production.restore()
    assert living(rig) == (PROD,)
    assert rig.host.states["expctl-1-x"].phase == UnitPhase.ENDED


def held_by(rig: Rig, **who: Any) -> GpuHolder:
    """Somebody holds a GPU from now on."""
    holder = GpuHolder(**{"pid": 42, "gpu_uuid": "GPU-0", "used_mib": 100, "name": "python", "owner": "somebody", **who})
    rig.host.gpu_reading = GpuReading(known=True, tool="nvidia-smi", gpus=(GpuMemory(0, "GPU-0", "card", 100, 1000),), holders=(holder,))
    return holder


def test_a_stranger_on_the_gpus_is_told_and_keeps_nobody_waiting(rig: Rig) -> None:
    rig.production.park()
    held_by(rig)
    began = rig.book.time
    rig.production.restore()
    assert living(rig) == (PROD,)
    assert "pid 42 python of somebody" in rig.book.told[-1][1]["not_clean"]
    assert rig.book.time == began, "who stays will stay for two minutes too"


@pytest.mark.parametrize("who", [{"name": None, "owner": None}, {"state": "D"}, {"unit": "expctl-1-x.service"}])
def test_memory_that_is_on_its_way_back_is_waited_for_and_not_for_ever(rig: Rig, who: dict[str, Any]) -> None:
    rig.production.park()
    held_by(rig, **who)
    began = rig.book.time
    rig.production.restore()
    assert GPU_PATIENCE_S < rig.book.time - began < GPU_PATIENCE_S + 10
    assert "pid 42" in rig.book.told[-1][1]["not_clean"]


def test_who_held_memory_beside_production_is_not_waited_for(rig: Rig) -> None:
    held_by(rig, name=None)
    rig.production.park()
    began = rig.book.time
    rig.production.restore()
    assert rig.book.time == began


def test_memory_that_comes_back_is_waited_for_no_longer_than_that(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.production.park()
    held_by(rig, state="Z")
    began, free = rig.book.time, rig.host.gpu_reading
    free = replace(free, holders=())
    wait = rig.book.wait

    def waited(seconds: float) -> None:
        wait(seconds)
        if rig.book.time - began >= 7:
            rig.host.gpu_reading = free

    monkeypatch.setattr(rig.book, "wait", waited)
    rig.production.restore()
    assert rig.book.time - began == pytest.approx(7)
    assert "not_clean" not in rig.book.told[-1][1]


def test_not_restored_is_told_once_and_tried_on(rig: Rig) -> None:
    rig.production.park()
    rig.host.stays_down.add(PROD)
    rig.book.began, rig.book.stop_after_s = rig.book.time, 2000.0
    with pytest.raises(HandOver):
        rig.production.restore()
    assert rig.book.kinds().count(EventType.PRODUCTION_NOT_RESTORED) == 1
    assert rig.book.blocked is not None
    assert rig.book.blocked.startswith("NOT RESTORED: vllm-prod.service is not active (exit-code)")
    rig.host.stays_down.clear()
    rig.book.stop_after_s = None
    rig.production.restore()
    assert rig.book.kinds()[-1] == EventType.PRODUCTION_RESTORED
    assert rig.book.blocked is None


def test_a_server_that_runs_and_does_not_answer_is_not_restored(rig: Rig) -> None:
    rig.production.park()
    rig.answers[f"{ADDRESS}:8000/v1"] = Readiness(False, detail="no token came back")
    rig.book.began, rig.book.stop_after_s = rig.book.time, 2000.0
    with pytest.raises(HandOver):
        rig.production.restore()
    assert EventType.PRODUCTION_NOT_RESTORED in rig.book.kinds()
    assert "no token came back" in (rig.book.blocked or "")


def test_a_title_that_is_not_there_yet_is_no_change(rig: Rig) -> None:
    rig.host.serve(PROD, 8123)
    title(rig, "VLLM::APIServer")
    rig.production.park()
    rig.host.sources[PROD] = replace(rig.host.sources[PROD], live_argv=("/v", "serve", "m", "--port", "8123"))
    rig.production.restore()
    assert rig.book.told[-1][1]["changed"] == []


def test_another_program_on_its_port_is_no_proof(rig: Rig) -> None:
    rig.production.park()
    rig.host.serve("imposter.service", 8000)
    unit = serving.Serving.from_json(rig.book.known["units"][0])
    answer = serving.serves(rig.host, unit, {})
    assert not answer.ready
    assert "not by vllm-prod.service" in answer.detail


def test_the_dead_man_s_work_is_accepted(rig: Rig) -> None:
    rig.production.park()
    rig.host.fire()
    rig.production.restore()
    assert (living(rig), rig.book.kinds()[-1]) == ((PROD,), EventType.PRODUCTION_RESTORED)


def test_parking_after_the_dead_man_has_fired_has_to_be_undone(rig: Rig) -> None:
    rig.production.park()
    rig.host.fire()
    rig.book.phase = "parking"
    with pytest.raises(DeadManFired):
        rig.production.park()
    rig.production.restore()
    assert "by itself at 2026-01-01T03:00:00Z" in rig.book.known["given_back_by_host"]


def test_a_host_that_is_out_of_reach_is_an_alarm_too(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.production.park()
    reachable = [False]

    def when_reachable(act: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            if not reachable[0]:
                raise HostError(Reason.HOST_UNREACHABLE, "no answer for 30 s")
            return act(*given)

        return call

    for name in ("units", "running"):
        monkeypatch.setattr(rig.host, name, when_reachable(getattr(rig.host, name)))
    rig.book.began, rig.book.stop_after_s = rig.book.time, 2000.0
    with pytest.raises(HandOver):
        rig.production.restore()
    assert rig.book.blocked == "NOT RESTORED: no answer for 30 s"
    reachable[0], rig.book.stop_after_s = True, None
    rig.production.restore()
    assert (living(rig), rig.book.blocked) == ((PROD,), None)


def test_the_time_that_a_lost_worker_tried_counts(rig: Rig) -> None:
    rig.production.park()
    rig.answers[f"{ADDRESS}:8000/v1"] = Readiness(False, detail="503 loading")
    for _ in range(3):
        rig.book.began, rig.book.stop_after_s = rig.book.time, 300.0
        with pytest.raises(HandOver):
            rig.production.restore()
    assert rig.book.kinds().count(EventType.PRODUCTION_NOT_RESTORED) == 1
