from __future__ import annotations

from dataclasses import replace

import pytest

from service.domain.errors import ClaimLost
from service.domain.reasons import Reason
from tests.unit.steps.stage import UNIT, Stage, gpus, holder
from workers.hosts.base import HostError, PortOwner, ShmUsage
from workers.hosts.gpu_reading import GpuHolder, GpuMemory, GpuReading
from workers.steps.base import Cancelled, StepFailed
from workers.steps.clear import clear
from workers.steps.free_gpus import SETTLE_S, TOLERANCE_MIB, UNKNOWN_S

OURSELVES = "expctl"


def failure(stage: Stage) -> StepFailed:
    with pytest.raises(StepFailed) as caught:
        clear(stage.ctx)
    return caught.value


def test_an_endpoint_needs_nothing_cleared(endpoint: Stage) -> None:
    clear(endpoint.ctx)
    assert endpoint.host.calls == []


def test_no_gpus_at_all_is_free(stage: Stage) -> None:
    clear(stage.ctx)
    assert stage.recorder.evidence == {"ended": [], "port": 8001, "gpus": "none on this host"}


def test_a_unit_that_runs_already_is_left_to_launch(stage: Stage) -> None:
    stage.start(recorded=False)
    stage.start("expctl-2-other", recorded=False)
    clear(stage.ctx)
    assert stage.called("stop_unit") == []


def test_left_overs_of_ours_are_ended_and_nothing_else(stage: Stage) -> None:
    for name in ("expctl-2-runs", "expctl-3-children", "expctl-4-gone", "vllm-production"):
        stage.start(name, recorded=False)
    stage.host.end("expctl-3-children", left_over=(9,))
    stage.host.end("expctl-4-gone")
    clear(stage.ctx)
    assert stage.called("stop_unit") == ["expctl-2-runs", "expctl-3-children"]
    assert stage.recorder.evidence["ended"] == ["expctl-2-runs", "expctl-3-children"]


@pytest.mark.parametrize("name", [UNIT, "expctl-2-other"])
def test_a_unit_whose_state_is_unknown_is_not_taken_for_gone(stage: Stage, name: str) -> None:
    stage.start(name, recorded=False)
    stage.lose_sight(name)
    assert failure(stage).reason == Reason.REMOTE_COMMAND_FAILED
    assert stage.called("stop_unit") == []


def test_a_claim_lost_is_seen_before_anything_is_stopped(stage: Stage) -> None:
    stage.start("expctl-2-runs", recorded=False)
    stage.recorder.interrupt(ClaimLost("x"))
    with pytest.raises(ClaimLost):
        clear(stage.ctx)
    assert stage.called("stop_unit") == []


def test_one_that_cannot_be_ended_is_the_hosts_failure(stage: Stage) -> None:
    stage.start("expctl-2-runs", recorded=False)
    stage.host.fail("stop_unit", Reason.UNKILLABLE_PROCESS, "pid 9")
    with pytest.raises(HostError) as caught:
        clear(stage.ctx)
    assert caught.value.reason == Reason.UNKILLABLE_PROCESS


@pytest.mark.parametrize(("pid", "who"), [(7, "pid 7 (nginx)"), (None, "a process of another user")])
def test_the_port_must_be_free(stage: Stage, pid: int | None, who: str) -> None:
    stage.host.port_owners[8001] = PortOwner(8001, pid, "nginx", None)
    found = failure(stage)
    assert (found.reason, found.detail) == (Reason.PORT_IN_USE, f"port 8001 is owned by {who}")


@pytest.mark.parametrize(
    ("why", "reason"),
    [
        ("driver_library_mismatch: nvidia-smi ended with status 18", Reason.DRIVER_LIBRARY_MISMATCH),
        ("gpu_lost: a GPU reports [GPU is lost]", Reason.GPU_LOST),
        ("gpu_hardware_error: a GPU reports [GPU requires reset]", Reason.GPU_HARDWARE_ERROR),
        ("nvidia-smi did not answer within 20 s", Reason.GPU_STATE_UNKNOWN),
        ("orphan_process: no word of a tool's", Reason.GPU_STATE_UNKNOWN),
    ],
)
def test_an_unknown_state_is_never_free(stage: Stage, why: str, reason: Reason) -> None:
    stage.host.gpu_readings = [gpus(0)]
    stage.host.gpu_reading = GpuReading(known=False, tool="nvidia-smi", why=why)
    found = failure(stage)
    assert (found.reason, found.detail, found.evidence) == (reason, f"nvidia-smi: {why}", why)


def test_two_readings_in_a_row(stage: Stage) -> None:
    free, busy = gpus(TOLERANCE_MIB, 0), gpus(TOLERANCE_MIB + 1, 0)
    stage.host.gpu_readings = [free, busy, free]
    stage.host.gpu_reading = free
    clear(stage.ctx)
    assert len(stage.called("gpus")) == 4
    assert stage.recorder.evidence["driver"] == "570.1"
    assert stage.recorder.evidence["gpus"][0] == {"index": 0, "name": "card", "used_mib": TOLERANCE_MIB}


def test_a_driver_may_take_its_time_to_give_memory_back(stage: Stage) -> None:
    stage.host.gpu_reading = gpus(50_000)

    def give_back() -> None:
        stage.host.gpu_reading = gpus(3)

    stage.clock.at(SETTLE_S - 0.5, give_back)
    clear(stage.ctx)
    assert stage.clock.now == SETTLE_S + 1, "the first free reading falls on the limit; the second is still waited for"


def test_cancel_is_seen_while_it_waits_for_memory(stage: Stage) -> None:
    stage.host.gpu_reading = gpus(50_000)
    stage.recorder.interrupt(Cancelled(), after_s=5)
    with pytest.raises(Cancelled):
        clear(stage.ctx)
    assert stage.clock.now == 5


@pytest.mark.parametrize(
    ("holders", "reason"),
    [
        ((), Reason.HELD_BY_UNKNOWN_PROCESS),
        ((holder("VLLM::Worker_TP0", OURSELVES),), Reason.ORPHAN_PROCESS),
        ((holder("sglang::scheduler", OURSELVES),), Reason.ORPHAN_PROCESS),
        ((holder("VLLM::Worker_TP0", "somebody-else"),), Reason.HELD_BY_OTHER_USER),
        ((holder("VLLM::Worker_TP0", None),), Reason.HELD_BY_UNKNOWN_PROCESS),
        ((holder(None, OURSELVES),), Reason.HELD_BY_UNKNOWN_PROCESS),
        ((holder(None, "somebody-else"),), Reason.HELD_BY_UNKNOWN_PROCESS),
        ((holder("/opt/llama.cpp/bin/llama-server", OURSELVES),), Reason.ORPHAN_PROCESS),
        ((holder("/opt/vllm/bin/python", OURSELVES),), Reason.HELD_BY_UNKNOWN_PROCESS),
        ((replace(holder("VLLM::EngineCore", OURSELVES), gpu_uuid="MIG-1"), holder("x", "ann", mib=0)), Reason.HELD_BY_OTHER_USER),
        ((holder("/usr/bin/python3", OURSELVES),), Reason.HELD_BY_UNKNOWN_PROCESS),
        ((holder("VLLM::EngineCore", OURSELVES), holder("python", "somebody-else", gpu=1)), Reason.HELD_BY_OTHER_USER),
        ((holder("VLLM::EngineCore", OURSELVES, gpu=1),), Reason.HELD_BY_UNKNOWN_PROCESS),  # nobody is named on GPU 0
    ],
)
def test_who_holds_the_memory_decides_the_reason(stage: Stage, holders: tuple[GpuHolder, ...], reason: Reason) -> None:
    stage.host.gpu_reading = gpus(40_000, 40_000 if any(one.gpu_uuid == "GPU-1" for one in holders) else 0, holders=holders)
    assert failure(stage).reason == reason
    assert stage.clock.now >= SETTLE_S


def test_a_small_holder_keeps_a_card_busy_too(stage: Stage) -> None:
    stage.host.gpu_reading = gpus(10, holders=(holder("VLLM::EngineCore", OURSELVES, mib=8),))
    assert failure(stage).reason == Reason.ORPHAN_PROCESS


def test_a_card_that_does_not_say_what_is_used_is_not_free(stage: Stage) -> None:
    stage.host.gpu_reading = gpus(0, None)
    found = failure(stage)
    assert found.evidence == "GPU 1 uses ? MiB (by nobody that the tool names)"


def test_the_evidence_names_pid_owner_and_amount_on_every_busy_card(stage: Stage) -> None:
    stage.host.gpu_reading = gpus(
        900,
        40_000,
        30_000,
        holders=(
            holder("python", "ann", pid=5, gpu=1, mib=39_000),
            holder(None, None, pid=6, gpu=1, mib=None),
            holder("VLLM::Worker_TP1", OURSELVES, pid=7, gpu=2, mib=0),
        ),
    )
    assert failure(stage).evidence == (
        "GPU 1 uses 40000 MiB (pid 5 python of ann 39000 MiB, pid 6 unknown of unknown ? MiB); "
        f"GPU 2 uses 30000 MiB (pid 7 VLLM::Worker_TP1 of {OURSELVES} 0 MiB)"
    )


def test_the_baseline_is_recorded(stage: Stage) -> None:
    card = GpuMemory(0, "GPU-0", "card", 55, 97_000, reserved_mib=609)
    stage.host.gpu_reading = GpuReading(known=True, tool="nvidia-smi", gpus=(card,), driver="570.1", warnings=("infoROM is corrupted",))
    clear(stage.ctx)
    evidence = stage.recorder.evidence
    assert (evidence["baseline_mib"], evidence["reserved_mib"]) == ({"GPU-0": 55}, {"GPU-0": 609})
    assert evidence["gpu_warnings"] == ["infoROM is corrupted"]
    assert "warnings" not in evidence


def test_memory_without_a_holder_is_explained(stage: Stage) -> None:
    stage.host.gpu_reading = gpus(40_000)
    found = failure(stage)
    assert found.reason == Reason.HELD_BY_UNKNOWN_PROCESS
    for words in ("not free after 120 s: GPU 0 uses 40000 MiB", "pid namespace", "leaked", "given back"):
        assert words in found.detail


def test_a_card_that_says_nothing_and_has_no_holder_is_unknown(stage: Stage) -> None:
    stage.host.gpu_reading = gpus(0, None)
    assert failure(stage).reason == Reason.GPU_STATE_UNKNOWN


def test_a_process_that_holds_nothing_does_not_matter(stage: Stage) -> None:
    stage.host.gpu_reading = gpus(3, holders=(holder("gpuagent", "root", mib=0), replace(holder("x", "y", mib=0), gpu_uuid="")))
    clear(stage.ctx)


@pytest.mark.parametrize("uuid", ["", "MIG-aa"])
@pytest.mark.parametrize("mib", [500, None])
def test_a_holder_on_a_card_that_is_not_named_counts(stage: Stage, uuid: str, mib: int | None) -> None:
    stage.host.gpu_reading = gpus(3, holders=(replace(holder("python", "ann", mib=mib), gpu_uuid=uuid),))
    found = failure(stage)
    assert found.reason == Reason.HELD_BY_OTHER_USER
    assert found.evidence.startswith("on a GPU that the tool does not name: pid 77 python of ann")


@pytest.mark.parametrize("later", [gpus(0), GpuReading(known=True, tool="none", no_gpus=True)])
def test_a_card_that_is_no_longer_listed_is_lost(stage: Stage, later: GpuReading) -> None:
    stage.host.gpu_readings = [gpus(0, 0)]
    stage.host.gpu_reading = later
    found = failure(stage)
    assert found.reason == Reason.GPU_LOST
    assert found.detail.startswith("GPU 1 was listed" if later.gpus else "GPU 0, 1 was listed")


def test_a_tool_may_stumble_and_then_all_is_proven_anew(stage: Stage) -> None:
    unknown = GpuReading(known=False, tool="nvidia-smi", why="nvidia-smi did not answer within 20 s")
    stage.host.gpu_readings = [gpus(0), unknown, gpus(0), unknown]
    stage.host.gpu_reading = gpus(0)
    clear(stage.ctx)
    assert len(stage.called("gpus")) == 6


def test_silence_is_counted_from_the_last_answer(stage: Stage) -> None:
    stage.host.gpu_readings = [gpus(50_000)] * 100 + [GpuReading(known=False, tool="nvidia-smi", why="it hangs")]
    stage.host.gpu_reading = gpus(0)
    clear(stage.ctx)
    assert stage.clock.now > UNKNOWN_S


def test_a_tool_that_goes_on_stumbling_is_unknown(stage: Stage) -> None:
    stage.host.gpu_reading = GpuReading(known=False, tool="nvidia-smi", why="it hangs")
    assert failure(stage).reason == Reason.GPU_STATE_UNKNOWN
    assert stage.clock.now == UNKNOWN_S


def test_a_known_failure_is_not_waited_for(stage: Stage) -> None:
    stage.host.gpu_reading = GpuReading(known=False, tool="nvidia-smi", why="gpu_lost: GPU is lost")
    failure(stage)
    assert stage.clock.now == 0


@pytest.mark.parametrize(
    ("usage", "said"),
    [
        (None, None),
        (ShmUsage(100, 1000), None),
        (ShmUsage(64, 64), "only 0 MiB of 64 MiB are free in /dev/shm"),
        (ShmUsage(900, 1000, tuple(f"nccl-{n}" for n in range(6))), "6 files there were left by engines that are gone: nccl-0, nccl-1"),
    ],
)
def test_a_full_shared_memory_is_a_warning(stage: Stage, usage: ShmUsage | None, said: str | None) -> None:
    stage.host.gpu_reading = gpus(0)
    stage.host.shm_usage = usage
    clear(stage.ctx)
    warnings = stage.recorder.evidence.get("warnings", [])
    assert len(warnings) == (said is not None)
    assert said is None or said in warnings[0]
