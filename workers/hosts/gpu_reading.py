"""What a GPU tool tells: the memory of each GPU, and who holds it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuMemory:
    """One GPU. MiB; None where the tool does not say."""

    index: int
    uuid: str
    name: str
    used_mib: int | None
    total_mib: int | None
    reserved_mib: int | None = None
    """The driver's own share, which belongs to no process and is never free."""


@dataclass(frozen=True)
class GpuHolder:
    """A process that holds GPU memory."""

    pid: int
    gpu_uuid: str
    """Empty where the tool does not say on which GPU."""
    used_mib: int | None
    name: str | None
    """None where the tool cannot name it: it has ended while its memory is still being given back, or it lives in another pid
    namespace, and then its pid means another process here, or none."""
    owner: str | None
    unit: str | None = None
    """As in ProcessInfo; None where the tool cannot name the process."""
    unit_lives: bool | None = None
    """As in ProcessInfo."""
    start_ticks: int | None = None
    state: str | None = None
    """Start and state of whoever has this pid here."""


@dataclass(frozen=True)
class GpuReading:
    """The GPUs at one moment. `known` is false where the tool did not answer properly; `why` says how."""

    known: bool
    tool: str
    gpus: tuple[GpuMemory, ...] = ()
    holders: tuple[GpuHolder, ...] = ()
    driver: str | None = None
    why: str = ""
    no_gpus: bool = False
    """True where it is certain that this host has no GPU at all (no device node of any vendor)."""
    warnings: tuple[str, ...] = ()
    """What the tool complains of beside its answer."""
