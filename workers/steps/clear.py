"""clear: prove that the port and every GPU are free. Unknown is not free."""

from __future__ import annotations

import os
from typing import Any

from service.domain.reasons import Reason
from workers.hosts.base import GpuHolder, GpuMemory, GpuReading, UnitPhase, UnitState
from workers.hosts.process import owner
from workers.steps.base import StepContext, StepFailed

TOLERANCE_MIB = 1024
"""What an idle card may show: contexts of display servers, MIG, the driver's own."""
SETTLE_S = 120.0
"""How long a driver may take to give memory back after a process ended."""
POLL_S = 1.0

ENGINE_TITLES = ("vllm::", "sglang::")
"""How engines title their processes, in lower case."""

BY_WEIGHT = (Reason.HELD_BY_OTHER_USER, Reason.HELD_BY_UNKNOWN_PROCESS, Reason.ORPHAN_PROCESS)
"""Where several kinds of holders are in the way, the one that is hardest to end names the failure."""

TOOL_FAILURES = {str(reason): reason for reason in (Reason.DRIVER_LIBRARY_MISMATCH, Reason.GPU_LOST, Reason.GPU_HARDWARE_ERROR)}
"""What `GpuReading.why` begins with where the tool's words were recognised."""


def clear(ctx: StepContext) -> None:
    """Nothing of ours may be left, nothing else may hold the port or a GPU."""
    if not ctx.engine.owns_process:
        ctx.recorder.note(evidence={"cleared": "nothing: the endpoint serves already"})
        return
    if _known(ctx.host.unit(ctx.unit)).phase == UnitPhase.ACTIVE:
        # A worker died between starting the unit and writing that down; launch will look at it.
        ctx.recorder.note(evidence={"cleared": "skipped: the unit runs already"})
        return
    ended = end_left_overs(ctx)
    _free_port(ctx)
    ctx.recorder.note(evidence={"ended": ended, "port": ctx.port, **_free_gpus(ctx)})


def _known(state: UnitState) -> UnitState:
    if state.phase == UnitPhase.UNKNOWN:
        raise StepFailed(Reason.REMOTE_COMMAND_FAILED, f"the state of {state.name} could not be read")
    return state


def end_left_overs(ctx: StepContext) -> list[str]:
    """End what an earlier experiment of ours left running on this host; gives the names."""
    ended = []
    for state in ctx.host.units():
        if state.name.startswith("expctl-") and (_known(state).phase == UnitPhase.ACTIVE or state.left_over_pids):
            ctx.recorder.check()
            ctx.host.stop_unit(state.name)
            ended.append(state.name)
    return ended


def _free_port(ctx: StepContext) -> None:
    found = ctx.host.port_owner(ctx.port)
    if found is not None:
        who = f"pid {found.pid} ({found.command})" if found.pid else "a process of another user"
        raise StepFailed(Reason.PORT_IN_USE, f"port {ctx.port} is owned by {who}", who)


def _free_gpus(ctx: StepContext) -> dict[str, Any]:
    """Two readings in a row must show every GPU free."""
    deadline = ctx.clock.monotonic() + SETTLE_S
    free_in_a_row = 0
    while True:
        ctx.recorder.check()
        reading = ctx.host.gpus()
        if reading.no_gpus:
            return {"gpus": "none on this host"}
        if not reading.known:
            reason = TOOL_FAILURES.get(reading.why.partition(":")[0], Reason.GPU_STATE_UNKNOWN)
            raise StepFailed(reason, f"{reading.tool}: {reading.why}", reading.why)
        busy = [gpu for gpu in reading.gpus if _is_busy(gpu, reading)]
        free_in_a_row = 0 if busy else free_in_a_row + 1
        if free_in_a_row == 2:  # noqa: PLR2004 - one reading can fall into a gap between two processes
            return {
                "gpus": [{"index": gpu.index, "name": gpu.name, "used_mib": gpu.used_mib} for gpu in reading.gpus],
                "driver": reading.driver,
            }
        if busy and ctx.clock.monotonic() >= deadline:
            who = "; ".join(_in_words(gpu, reading) for gpu in busy)
            raise StepFailed(_reason(busy, reading), f"not free after {SETTLE_S:.0f} s: {who}", who)
        ctx.clock.wait(POLL_S)


def _holders(gpu: GpuMemory, reading: GpuReading) -> list[GpuHolder]:
    return [holder for holder in reading.holders if holder.gpu_uuid == gpu.uuid]


def _is_busy(gpu: GpuMemory, reading: GpuReading) -> bool:
    """A GPU that does not say how much is used is not free."""
    return gpu.used_mib is None or gpu.used_mib > TOLERANCE_MIB or bool(_holders(gpu, reading))


def _in_words(gpu: GpuMemory, reading: GpuReading) -> str:
    named = ", ".join(
        f"pid {holder.pid} {holder.name or 'unknown'} of {holder.owner or 'unknown'} {_mib(holder.used_mib)}"
        for holder in _holders(gpu, reading)
    )
    return f"GPU {gpu.index} uses {_mib(gpu.used_mib)} ({named or 'by nobody that the tool names'})"


def _mib(value: int | None) -> str:
    return "? MiB" if value is None else f"{value} MiB"


def _reason(busy: list[GpuMemory], reading: GpuReading) -> Reason:
    """Whose memory it is, by the holder that is hardest to end."""
    ourselves = owner(os.getpid())
    kinds: set[Reason] = set()
    for gpu in busy:
        holders = _holders(gpu, reading)
        kinds |= {_kind(holder, ourselves) for holder in holders} if holders else {Reason.HELD_BY_UNKNOWN_PROCESS}
    return next(reason for reason in BY_WEIGHT if reason in kinds)


def _kind(holder: GpuHolder, ourselves: str | None) -> Reason:
    """Every unit of ours has ended by now, so an engine of our own user is one that was left over."""
    if holder.name is None or holder.owner is None:
        # Without a name the process is not in our sight, and its number may be another one's here.
        return Reason.HELD_BY_UNKNOWN_PROCESS
    if holder.owner != ourselves:
        return Reason.HELD_BY_OTHER_USER
    return Reason.ORPHAN_PROCESS if holder.name.lower().startswith(ENGINE_TITLES) else Reason.HELD_BY_UNKNOWN_PROCESS
