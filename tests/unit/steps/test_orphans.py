"""Engines that outlived their unit are ended, and nobody else is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.domain.errors import ClaimLost
from service.domain.reasons import Reason
from tests.unit.steps.stage import Stage, gpus, holder
from workers.hosts.base import HostError, PortOwner, ProcessInfo
from workers.hosts.gpu_reading import GpuHolder
from workers.steps.base import Cancelled, StepFailed
from workers.steps.clear import PORT_SETTLE_S, clear
from workers.steps.free_gpus import SETTLE_S
from workers.steps.orphans import WHY

OURSELVES = "expctl"


def orphan(name: str = "VLLM::Worker_TP0", pid: int = 77, gpu: int = 0, unit: str | None = None, state: str | None = "S") -> GpuHolder:
    """One that could be ended: its start is known."""
    return replace(holder(name, OURSELVES, pid, gpu), start_ticks=pid * 10, unit=unit, state=state)


def failure(stage: Stage) -> StepFailed:
    with pytest.raises(StepFailed) as caught:
        clear(stage.ctx)
    return caught.value


def test_orphans_of_ours_are_ended_and_their_memory_is_waited_for(stage: Stage) -> None:
    holders = (orphan(pid=77), orphan(pid=78, gpu=1), orphan(pid=77, gpu=1))
    stage.host.gpu_reading = gpus(40_000, 40_000, holders=holders)
    stage.host.living = {pid: ProcessInfo(pid) for pid in (77, 78)}
    stage.clock.at(SETTLE_S + 60, lambda: setattr(stage.host, "gpu_reading", gpus(3, 3)))
    # The second shows up late, and from then on it has the whole time again.
    stage.host.gpu_readings = [gpus(40_000, 40_000, holders=holders[:1])] * 90
    clear(stage.ctx)
    assert stage.called("end_process") == ["77", "78"]
    assert stage.recorder.evidence["orphans_ended"] == ["pid 77 (VLLM::Worker_TP0)", "pid 78 (VLLM::Worker_TP0)"]


def test_an_orphan_is_noted_before_its_memory_is_waited_for(stage: Stage) -> None:
    stage.host.gpu_reading = gpus(40_000, holders=(orphan(),))
    stage.recorder.interrupt(Cancelled(), after_s=5)
    with pytest.raises(Cancelled):
        clear(stage.ctx)
    assert stage.recorder.evidence["orphans_ended"] == ["pid 77 (VLLM::Worker_TP0), which was gone already"]


def test_a_claim_lost_is_seen_before_an_orphan_is_ended(stage: Stage) -> None:
    stage.host.gpu_reading = gpus(40_000, holders=(orphan(),))
    checks = stage.recorder.check
    seen: list[str] = []

    def check() -> None:
        seen.append(",".join(name for name, _ in stage.host.calls))
        if "gpus" in seen[-1]:
            raise ClaimLost("x")
        checks()

    stage.recorder.check = check  # type: ignore[method-assign]
    with pytest.raises(ClaimLost):
        clear(stage.ctx)
    assert stage.called("end_process") == []


@pytest.mark.parametrize(
    ("unit", "living", "ended"),
    [
        (None, False, True),
        ("expctl-9-gone.service", False, True),
        ("vllm-prod.service", False, True),
        ("session-3.scope", False, False),
        ("other-team.service", False, False),
        ("expctl-9-gone.service", True, False),
    ],
)
def test_only_one_in_no_living_unit_is_an_orphan(stage: Stage, unit: str | None, *, living: bool, ended: bool) -> None:
    if living:
        stage.start("expctl-9-gone.service", recorded=False)
        stage.host.stop_unit = lambda name, grace_s=15.0: stage.host.unit(name)  # type: ignore[method-assign]  # noqa: ARG005
    stage.host.gpu_reading = gpus(40_000, holders=(orphan(unit=unit),))
    stage.clock.at(5, lambda: setattr(stage.host, "gpu_reading", gpus(3)))
    clear(replace(stage.ctx, production=("vllm-prod.service",)))
    assert stage.called("end_process") == (["77"] if ended else [])


@pytest.mark.parametrize("lives", [True, False])
def test_the_service_managers_own_word_decides(stage: Stage, *, lives: bool) -> None:
    stage.host.gpu_reading = gpus(40_000, holders=(replace(orphan(unit="by-hand.service"), unit_lives=lives),))
    stage.clock.at(5, lambda: setattr(stage.host, "gpu_reading", gpus(3)))
    clear(stage.ctx)
    assert stage.called("end_process") == ([] if lives else ["77"])


@pytest.mark.parametrize(
    "one",
    [
        orphan("VLLM::EngineCore", unit="session-3.scope"),
        replace(orphan(), owner="ann"),
        replace(orphan(), owner=None),
        replace(orphan(), name=None, owner=None),
        replace(orphan(), start_ticks=None),
        orphan("python"),
        orphan("vim /tmp/vllm::notes"),
    ],
)
def test_nobody_else_is_ended(stage: Stage, one: GpuHolder) -> None:
    stage.host.gpu_reading = gpus(40_000, holders=(one,))
    assert "pid 77" in failure(stage).evidence
    assert stage.called("end_process") == []


@pytest.mark.parametrize("run_as", [None, "somebody"])
def test_whose_engines_are_ours_comes_from_the_host(stage: Stage, run_as: str | None) -> None:
    stage.host.run_as = run_as
    stage.host.gpu_reading = gpus(40_000, holders=(orphan(),))
    assert failure(stage).reason == Reason.HELD_BY_OTHER_USER
    assert stage.called("end_process") == []


def test_who_the_experiment_itself_runs_as_is_ours_too(stage: Stage) -> None:
    stage.host.run_as = None
    stage.host.gpu_reading = gpus(3, holders=(orphan(),))
    clear(replace(stage.ctx, run_as=OURSELVES))
    assert stage.called("end_process") == ["77"]


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [(Reason.UNKILLABLE_PROCESS, Reason.UNKILLABLE_PROCESS), (Reason.PERMISSION_DENIED, Reason.ORPHAN_PROCESS)],
)
def test_an_orphan_that_cannot_be_ended(stage: Stage, refusal: Reason, reason: Reason) -> None:
    stage.host.gpu_reading = gpus(40_000, holders=(orphan(),))
    stage.host.fail("end_process", refusal, "state D")
    found = failure(stage)
    assert (found.reason, found.evidence) == (reason, "state D")
    assert found.detail == f"pid 77 (VLLM::Worker_TP0) is {WHY}, and could not be ended: state D"


def test_a_host_that_is_lost_meanwhile_is_the_hosts_failure(stage: Stage) -> None:
    stage.host.gpu_reading = gpus(40_000, holders=(orphan(),))
    stage.host.fail("end_process", Reason.CONNECTION_LOST)
    with pytest.raises(HostError):
        clear(stage.ctx)


def test_one_that_is_still_there_after_it_was_ended_is_unkillable(stage: Stage) -> None:
    stage.host.gpu_readings = [gpus(40_000, holders=(orphan(state="D"),))] * 200
    found = failure(stage)
    assert found.reason == Reason.UNKILLABLE_PROCESS
    assert found.evidence == "GPU 0 uses 40000 MiB (pid 77 VLLM::Worker_TP0 of expctl 500 MiB, state D)"
    assert stage.called("end_process") == ["77"]


def test_one_whose_memory_is_not_given_back_is_not_an_orphan_any_more(stage: Stage) -> None:
    gone = replace(orphan(), name=None, owner=None, start_ticks=None, state=None)
    stage.host.gpu_readings = [gpus(40_000, holders=(orphan(),))] + [gpus(40_000, holders=(gone,))] * 200
    assert failure(stage).reason == Reason.HELD_BY_UNKNOWN_PROCESS


def test_production_that_serves_again_is_never_ended(stage: Stage) -> None:
    stage.start("vllm-prod.service", recorded=False)
    stage.host.gpu_reading = gpus(90_000, holders=(orphan(unit="vllm-prod.service"),))
    with pytest.raises(StepFailed) as caught:
        clear(replace(stage.ctx, production=("vllm-prod.service",)))
    assert caught.value.reason == Reason.PRODUCTION_STARTED_BY_HAND
    assert stage.called("end_process") == []
    assert stage.clock.now == 0


@pytest.mark.parametrize(
    ("command", "name"),
    [("VLLM::APIServer", "VLLM::APIServer"), ("VLLM::APIServer", "pt_main_thread"), ("python serve.py", "VLLM::APIServer")],
)
def test_an_orphan_on_the_port_is_ended(stage: Stage, command: str, name: str) -> None:
    stage.host.port_owners[8001] = PortOwner(8001, 7, command, None)
    stage.host.living[7] = ProcessInfo(7, name, OURSELVES, start_ticks=70)
    clear(stage.ctx)
    assert stage.called("end_process") == ["7"]
    assert stage.recorder.evidence["orphans_ended"] == ["pid 7 (VLLM::APIServer)"]


def test_an_orphan_on_the_port_is_noted_without_its_arguments(stage: Stage) -> None:
    stage.host.port_owners[8001] = PortOwner(8001, 7, "/opt/llama-server --api-key secret", None)
    stage.host.living[7] = ProcessInfo(7, "llama-server", OURSELVES, start_ticks=70)
    clear(stage.ctx)
    assert stage.recorder.evidence["orphans_ended"] == ["pid 7 (/opt/llama-server)"]


@pytest.mark.parametrize("change", [{"owner": "ann"}, {"unit": "vllm-prod.service"}, {"start_ticks": None}])
def test_nobody_else_on_the_port_is_ended(stage: Stage, change: dict[str, str | None]) -> None:
    stage.host.port_owners[8001] = PortOwner(8001, 7, "VLLM::APIServer", None)
    stage.host.living[7] = replace(ProcessInfo(7, "VLLM::APIServer", OURSELVES, start_ticks=70), **change)  # type: ignore[arg-type]
    assert failure(stage).reason == Reason.PORT_IN_USE
    assert stage.called("end_process") == []
    assert stage.clock.now == 0


def test_another_program_of_our_user_on_the_port_is_not_ended(stage: Stage) -> None:
    stage.host.port_owners[8001] = PortOwner(8001, 7, "nginx -c vllm::conf", None)
    stage.host.living[7] = ProcessInfo(7, "nginx", OURSELVES, start_ticks=70)
    assert failure(stage).reason == Reason.PORT_IN_USE
    assert stage.called("end_process") == []


def test_a_port_whose_owner_is_gone_is_waited_for_a_while(stage: Stage) -> None:
    stage.host.port_owners[8001] = PortOwner(8001, 7, "VLLM::APIServer", None)
    assert failure(stage).reason == Reason.PORT_IN_USE
    assert stage.clock.now == PORT_SETTLE_S
