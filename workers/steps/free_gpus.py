"""Prove that every GPU is free: two readings in a row with no holder and no more memory in use than an idle card shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from service.domain.reasons import Reason
from workers.hosts.gpu_reading import GpuHolder, GpuMemory, GpuReading
from workers.steps.base import StepContext, StepFailed
from workers.steps.orphans import Orphans

TOLERANCE_MIB = 1024
"""What an idle card may show: contexts of display servers, MIG, the driver's own."""
SETTLE_S = 120.0
"""How long a driver may take to give memory back after a process ended."""
UNKNOWN_S = 60.0
"""How long a tool may go without a proper answer: it is slow, and fails now and then, while a driver tidies up."""
POLL_S = 1.0
IN_A_ROW = 2
"""One reading can fall into a gap between two processes."""

TOOL_FAILURES = {str(reason): reason for reason in (Reason.DRIVER_LIBRARY_MISMATCH, Reason.GPU_LOST, Reason.GPU_HARDWARE_ERROR)}
"""What `GpuReading.why` begins with where the tool's words were recognised. None of these passes by itself."""

BY_WEIGHT = (
    Reason.UNKILLABLE_PROCESS,
    Reason.HELD_BY_OTHER_USER,
    Reason.HELD_BY_UNKNOWN_PROCESS,
    Reason.GPU_STATE_UNKNOWN,
    Reason.ORPHAN_PROCESS,
)
"""Where several kinds of holders are in the way, the one that is hardest to end names the failure."""

NOBODY = (
    "memory that no process holds is being given back by a driver that takes its time, is held in another pid namespace such as a "
    "container's, or has leaked in the driver"
)


@dataclass
class _Block:
    """A GPU that is not free, and who holds it. Without a GPU: processes of which the tool does not say where."""

    gpu: GpuMemory | None
    holders: list[GpuHolder] = field(default_factory=list)

    def __str__(self) -> str:
        who = ", ".join(_who(holder) for holder in self.holders)
        if self.gpu is None:
            return f"on a GPU that the tool does not name: {who}"
        return f"GPU {self.gpu.index} uses {_mib(self.gpu.used_mib)} ({who or 'by nobody that the tool names'})"


def free_gpus(ctx: StepContext, orphans: Orphans) -> dict[str, Any]:
    """Evidence that all are free. Left-over engines of ours are ended on the way; any other holder fails the step by its name."""
    began = answered = ctx.clock.monotonic()
    deadline = began + SETTLE_S
    seen: dict[str, int] = {}
    free_in_a_row = 0
    while True:
        ctx.recorder.check()
        reading = ctx.host.gpus()
        now = ctx.clock.monotonic()
        if reading.known:
            answered = now
            _none_lost(seen, reading)
            if reading.no_gpus:
                return {"gpus": "none on this host"}
            _no_production(reading, orphans)
            if orphans.end_among(reading.holders):
                deadline = ctx.clock.monotonic() + SETTLE_S
            blocks = _blocks(reading)
            free_in_a_row = 0 if blocks else free_in_a_row + 1
            if free_in_a_row == IN_A_ROW:
                return _evidence(reading)
            if blocks and now >= deadline:
                raise _not_free(blocks, orphans, now - began)
        else:
            free_in_a_row = 0
            _may_still_answer(reading, now - answered)
        ctx.clock.wait(POLL_S)


def _may_still_answer(reading: GpuReading, silent_s: float) -> None:
    known = TOOL_FAILURES.get(reading.why.partition(":")[0])
    if known is not None or silent_s >= UNKNOWN_S:
        raise StepFailed(known or Reason.GPU_STATE_UNKNOWN, f"{reading.tool}: {reading.why}", reading.why)


def _none_lost(seen: dict[str, int], reading: GpuReading) -> None:
    """A card that was listed a moment ago and no longer is has not become free."""
    missing = sorted(index for uuid, index in seen.items() if uuid not in {gpu.uuid for gpu in reading.gpus})
    if missing:
        detail = f"GPU {', '.join(map(str, missing))} was listed a moment ago, and no longer is"
        raise StepFailed(Reason.GPU_LOST, detail, detail)
    seen.update({gpu.uuid: gpu.index for gpu in reading.gpus})


def _no_production(reading: GpuReading, orphans: Orphans) -> None:
    for holder in reading.holders:
        unit = orphans.production(holder)
        if unit is not None:
            raise StepFailed(Reason.PRODUCTION_STARTED_BY_HAND, f"{unit} runs again: {_who(holder)}", _who(holder))


def _blocks(reading: GpuReading) -> list[_Block]:
    found = [_Block(gpu, [holder for holder in reading.holders if holder.gpu_uuid == gpu.uuid]) for gpu in reading.gpus]
    placed = {gpu.uuid for gpu in reading.gpus}
    loose = _Block(None, [holder for holder in reading.holders if holder.gpu_uuid not in placed and holder.used_mib != 0])
    return [block for block in found if _is_busy(block)] + ([loose] if loose.holders else [])


def _is_busy(block: _Block) -> bool:
    """A GPU that does not say how much is used is not free. A process that holds nothing, such as a monitor, does not matter."""
    used = None if block.gpu is None else block.gpu.used_mib
    return used is None or used > TOLERANCE_MIB or any(holder.used_mib != 0 for holder in block.holders)


def _not_free(blocks: list[_Block], orphans: Orphans, waited_s: float) -> StepFailed:
    """By the holder that is hardest to end."""
    who = "; ".join(str(block) for block in blocks)
    kinds = {kind for block in blocks for kind in _kinds(block, orphans)}
    reason = next(reason for reason in BY_WEIGHT if reason in kinds)
    nobody = f"; {NOBODY}" if reason == Reason.HELD_BY_UNKNOWN_PROCESS and any(not block.holders for block in blocks) else ""
    return StepFailed(reason, f"not free after {waited_s:.0f} s: {who}{nobody}", who)


def _kinds(block: _Block, orphans: Orphans) -> set[Reason]:
    if block.holders:
        return {_kind(holder, orphans) for holder in block.holders}
    silent = block.gpu is not None and block.gpu.used_mib is None
    return {Reason.GPU_STATE_UNKNOWN if silent else Reason.HELD_BY_UNKNOWN_PROCESS}


def _kind(holder: GpuHolder, orphans: Orphans) -> Reason:
    if orphans.survived(holder):
        return Reason.UNKILLABLE_PROCESS
    if holder.name is None or holder.owner is None:
        # Without a name the process is not in our sight, and its number may be another one's here.
        return Reason.HELD_BY_UNKNOWN_PROCESS
    if orphans.is_foreign(holder):
        return Reason.HELD_BY_OTHER_USER
    return Reason.ORPHAN_PROCESS if orphans.is_one(holder) else Reason.HELD_BY_UNKNOWN_PROCESS


def _evidence(reading: GpuReading) -> dict[str, Any]:
    """What an idle card shows here is the baseline that the next reading of it is held against."""
    found: dict[str, Any] = {
        "gpus": [{"index": gpu.index, "name": gpu.name, "used_mib": gpu.used_mib} for gpu in reading.gpus],
        "baseline_mib": {gpu.uuid: gpu.used_mib for gpu in reading.gpus},
        "driver": reading.driver,
    }
    if any(gpu.reserved_mib for gpu in reading.gpus):
        found["reserved_mib"] = {gpu.uuid: gpu.reserved_mib for gpu in reading.gpus}
    return found | ({"gpu_warnings": list(reading.warnings)} if reading.warnings else {})


def _who(holder: GpuHolder) -> str:
    more = (f" in {holder.unit}" if holder.unit else "") + (f", state {holder.state}" if holder.state in {"D", "R", "Z"} else "")
    return f"pid {holder.pid} {holder.name or 'unknown'} of {holder.owner or 'unknown'} {_mib(holder.used_mib)}{more}"


def _mib(value: int | None) -> str:
    return "? MiB" if value is None else f"{value} MiB"
