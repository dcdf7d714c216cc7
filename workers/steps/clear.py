"""clear: prove that the port and every GPU are free. Unknown is not free."""

from __future__ import annotations

from typing import Any

from service.domain.reasons import Reason
from workers.hosts.base import GpuReading, UnitPhase
from workers.steps.base import StepContext, StepFailed

TOLERANCE_MIB = 1024
"""What an idle card may show: contexts of display servers, MIG, the driver's own."""
SETTLE_S = 120.0
"""How long a driver may take to give memory back after a process ended."""
POLL_S = 1.0


def clear(ctx: StepContext) -> None:
    """Nothing of ours may be left, nothing else may hold the port or a GPU."""
    if not ctx.engine.owns_process:
        ctx.recorder.note(evidence={"cleared": "nothing: the endpoint serves already"})
        return
    if ctx.host.unit(ctx.unit).phase == UnitPhase.ACTIVE:
        # A worker died between starting the unit and writing that down; launch will look at it.
        ctx.recorder.note(evidence={"cleared": "skipped: the unit runs already"})
        return
    ended = _end_left_overs(ctx)
    _free_port(ctx)
    ctx.recorder.note(evidence={"ended": ended, "port": ctx.port, **_free_gpus(ctx)})


def _end_left_overs(ctx: StepContext) -> list[str]:
    ended = []
    for state in ctx.host.units():
        if state.name.startswith("expctl-") and (state.phase == UnitPhase.ACTIVE or state.left_over_pids):
            ctx.recorder.check()
            ctx.host.stop_unit(state.name)
            ended.append(state.name)
    return ended


def _free_port(ctx: StepContext) -> None:
    owner = ctx.host.port_owner(ctx.port)
    if owner is not None:
        who = f"pid {owner.pid} ({owner.command})" if owner.pid else "a process of another user"
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
            raise StepFailed(Reason.GPU_STATE_UNKNOWN, f"{reading.tool}: {reading.why}", reading.why)
        busy = _busy(reading)
        free_in_a_row = 0 if busy else free_in_a_row + 1
        if free_in_a_row == 2:  # noqa: PLR2004 - one reading can fall into a gap between two processes
            return {
                "gpus": [{"index": gpu.index, "name": gpu.name, "used_mib": gpu.used_mib} for gpu in reading.gpus],
                "driver": reading.driver,
            }
        if ctx.clock.monotonic() >= deadline:
            reason = Reason.HELD_BY_UNKNOWN_PROCESS if not reading.holders else Reason.HELD_BY_OTHER_USER
            raise StepFailed(reason, f"not free after {SETTLE_S:.0f} s: {busy}", busy)
        ctx.clock.wait(POLL_S)


def _busy(reading: GpuReading) -> str:
    """Who holds what, in words; empty when every GPU is free. A GPU that does not say how much is used is not free."""
    parts = []
    for gpu in reading.gpus:
        holders = [holder for holder in reading.holders if holder.gpu_uuid == gpu.uuid]
        if gpu.used_mib is None or gpu.used_mib > TOLERANCE_MIB or holders:
            named = ", ".join(f"pid {h.pid} {h.name or 'unknown'} of {h.owner or 'unknown'} {h.used_mib or '?'} MiB" for h in holders)
            parts.append(f"GPU {gpu.index} uses {'?' if gpu.used_mib is None else gpu.used_mib} MiB" + (f" ({named})" if named else ""))
    return "; ".join(parts)
