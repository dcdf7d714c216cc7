"""Engines of ours that outlived their unit: how they are told from others' processes, and how they are ended."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

from service.domain.reasons import Reason
from workers.hosts.base import HostError, PortOwner, ProcessInfo
from workers.hosts.gpu_reading import GpuHolder
from workers.steps.base import StepContext, StepFailed

ENGINE_TITLES = ("vllm::", "sglang::", "llama-server", "trtllm-serve")
"""How engines title their processes, in lower case; a program counts by its name without the folder."""
OURS = "expctl-"
WHY = "an engine that outlived its unit"


class Orphans:
    """Those met in one clear, and what was done about them. Nothing is ended twice."""

    def __init__(self, ctx: StepContext) -> None:
        self._ctx = ctx
        self._users = {ctx.host.run_as, ctx.run_as} - {None}
        self._ended: dict[tuple[int, int], str] = {}

    @property
    def ended(self) -> list[str]:
        """In words, for the record."""
        return list(self._ended.values())

    def end_among(self, holders: Iterable[GpuHolder]) -> bool:
        """End those that hold GPU memory; True where one was."""
        ended = [self._end(holder.pid, holder.start_ticks, holder.name) for holder in holders if self.is_one(holder)]
        return any(ended)

    def end_port_owner(self, owner: PortOwner) -> bool:
        """End whoever listens, where it is one, or find it gone; False where it is somebody else."""
        if owner.pid is None:
            return False
        info = self._ctx.host.processes([owner.pid]).get(owner.pid)
        if info is None:
            return True
        # A thread of PyTorch's may have renamed the program while the title still stands; of the rest an argument may be a key.
        title = next(iter((owner.command or "").split()), "")
        name = title if _is_engine(title) else info.name
        return self._is_one(name, info.owner, info) and self._end(owner.pid, info.start_ticks, name)

    def is_one(self, holder: GpuHolder) -> bool:
        """An engine of a user of ours, in no living unit."""
        return self._is_one(holder.name, holder.owner, holder)

    def is_foreign(self, holder: GpuHolder) -> bool:
        """Known to be of somebody else than experiments run as."""
        return holder.owner is not None and holder.owner not in self._users

    def survived(self, holder: GpuHolder) -> bool:
        """Whether exactly this process was ended here before, and is still there."""
        return holder.start_ticks is not None and (holder.pid, holder.start_ticks) in self._ended

    def production(self, holder: GpuHolder) -> str | None:
        """The parked unit that this process serves in, started again by somebody."""
        unit = holder.unit
        return unit if unit is not None and unit in self._ctx.production and self._in_living_unit(holder) else None

    def _is_one(self, name: str | None, owner: str | None, process: GpuHolder | ProcessInfo) -> bool:
        return name is not None and owner in self._users and _is_engine(name) and not self._in_living_unit(process)

    def _in_living_unit(self, process: GpuHolder | ProcessInfo) -> bool:
        unit = process.unit
        if unit is None:
            return False
        if process.unit_lives is not None:
            return process.unit_lives
        # Of others' units, and of people's sessions, nothing is known here but that they are not ours to end.
        return not (unit.startswith(OURS) or unit in self._ctx.production) or unit in self._ctx.host.running([unit])

    def _end(self, pid: int, start_ticks: int | None, name: str | None) -> bool:
        if start_ticks is None or (pid, start_ticks) in self._ended:
            return False
        who = f"pid {pid} ({name})"
        self._ctx.recorder.check()
        try:
            found = self._ctx.host.end_process(pid, start_ticks, WHY)
        except HostError as error:
            detail = f"{who} is {WHY}, and could not be ended: {error.evidence}"
            if error.reason == Reason.UNKILLABLE_PROCESS:
                raise StepFailed(Reason.UNKILLABLE_PROCESS, detail, error.evidence) from error
            if error.reason == Reason.PERMISSION_DENIED:
                raise StepFailed(Reason.ORPHAN_PROCESS, detail, error.evidence) from error
            raise
        self._ended[pid, start_ticks] = who if found else f"{who}, which was gone already"
        # At once: if this worker dies now, the next one finds no trace of it on the host.
        self._ctx.recorder.note(evidence={"orphans_ended": self.ended})
        return True


def _is_engine(name: str) -> bool:
    word = next(iter(name.lower().split()), "")
    return PurePosixPath(word).name.startswith(ENGINE_TITLES)
