"""clear: prove that the port and every GPU are free. Unknown is not free."""

from __future__ import annotations

from typing import Any

from service.domain.reasons import Reason
from workers.hosts.base import UnitPhase, UnitState
from workers.steps.base import StepContext, StepFailed
from workers.steps.before import look_before
from workers.steps.free_gpus import free_gpus
from workers.steps.orphans import OURS, Orphans

PORT_SETTLE_S = 10.0
"""How long a port may take to become free once an orphan on it was ended: its children may hold it for a moment."""
POLL_S = 1.0
SHM_FREE_MIB = 512
"""With less than this in /dev/shm, NCCL and the workers of a large engine may not find room to start."""
SHOWN = 5


def clear(ctx: StepContext) -> None:
    """Nothing of ours may be left, nothing else may hold the port or a GPU."""
    if not ctx.engine.owns_process:
        ctx.recorder.note(evidence={"cleared": "nothing: the endpoint serves already"})
        return
    if _known(ctx.host.unit(ctx.unit)).phase == UnitPhase.ACTIVE:
        # A worker died between starting the unit and writing that down; launch will look at it.
        ctx.recorder.note(evidence={"cleared": "skipped: the unit runs already"})
        return
    look_before(ctx)
    ended = end_left_overs(ctx)
    orphans = Orphans(ctx)
    if ctx.port:  # a command has none
        _free_port(ctx, orphans)
    found = free_gpus(ctx, orphans)
    if "baseline_mib" in found:
        found |= _shared_memory(ctx)
    ctx.recorder.note(evidence={"ended": ended, "port": ctx.port, **found})


def _known(state: UnitState) -> UnitState:
    if state.phase == UnitPhase.UNKNOWN:
        raise StepFailed(Reason.REMOTE_COMMAND_FAILED, f"the state of {state.name} could not be read")
    return state


def end_left_overs(ctx: StepContext) -> list[str]:
    """End what an earlier experiment of ours left running on this host; gives the names."""
    ended = []
    for state in ctx.host.units():
        if state.name.startswith(OURS) and (_known(state).phase == UnitPhase.ACTIVE or state.left_over_pids):
            ctx.recorder.check()
            ctx.host.stop_unit(state.name)
            ended.append(state.name)
    return ended


def _free_port(ctx: StepContext, orphans: Orphans) -> None:
    deadline = ctx.clock.monotonic() + PORT_SETTLE_S
    while True:
        ctx.recorder.check()
        found = ctx.host.port_owner(ctx.port)
        if found is None:
            return
        if not orphans.end_port_owner(found) or ctx.clock.monotonic() >= deadline:
            who = f"pid {found.pid} ({found.command})" if found.pid else "a process of another user"
            raise StepFailed(Reason.PORT_IN_USE, f"port {ctx.port} is owned by {who}", who)
        ctx.clock.wait(POLL_S)


def _shared_memory(ctx: StepContext) -> dict[str, Any]:
    """Only looked at: what a living process of anybody maps there must stay, and nothing can tell for certain."""
    usage = ctx.host.shm()
    free = None if usage is None else usage.total_mib - usage.used_mib
    if usage is None or free is None or free >= SHM_FREE_MIB:
        return {}
    left = ", ".join(usage.left_over[:SHOWN]) + (", ..." if len(usage.left_over) > SHOWN else "")
    more = f"; {len(usage.left_over)} files there were left by engines that are gone: {left}" if usage.left_over else ""
    return {"warnings": [f"only {free} MiB of {usage.total_mib} MiB are free in /dev/shm, and NCCL fails where it finds no room{more}"]}
