"""What a host can be asked: the seam between the steps and a machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class UnitPhase(StrEnum):
    """Where a unit is."""

    NOT_FOUND = "not_found"  # never started here
    ACTIVE = "active"  # its main process lives
    ENDED = "ended"  # its main process is gone
    UNKNOWN = "unknown"  # the host could not say; never taken for any of the others


@dataclass(frozen=True)
class UnitDefinition:
    """What to run. `env` is added to the host's own environment; its values may be secrets and are not shown."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    user: str | None = None
    """Who runs it; None: whoever the host runs things as."""


@dataclass(frozen=True)
class UnitState:
    """One observation of a unit."""

    name: str
    phase: UnitPhase
    invocation_id: str | None = None
    """Tells one start of a unit from another."""
    main_pid: int | None = None
    exit_status: int | None = None
    """Exit status of the main process, where known."""
    signal: int | None = None
    """Signal that ended the main process, where known."""
    left_over_pids: tuple[int, ...] = ()
    """Processes of an ended unit that still live."""
    argv: tuple[str, ...] = ()
    """What the main process shows in /proc while it lives (a program may rewrite it, as vLLM does: `VLLM::APIServer`, and a
    script is shown with its interpreter); once it has ended, what was asked for."""


@dataclass(frozen=True)
class LogChunk:
    """A bounded piece of a unit's log: whole lines, and the cursor to read on from."""

    lines: tuple[str, ...]
    cursor: str
    at_end: bool


@dataclass(frozen=True)
class PortOwner:
    """Who listens on a TCP port. `pid` is None where another user's process hides it; unknown is never ours."""

    port: int
    pid: int | None
    command: str | None
    unit: str | None
    """Name of the unit of ours that the process belongs to, else None."""
    shared: bool = False
    """True where sockets of several owners listen on the port; then one that is not ours is named, if there is one."""


@dataclass(frozen=True)
class GpuMemory:
    """One GPU. MiB; None where the tool does not say."""

    index: int
    uuid: str
    name: str
    used_mib: int | None
    total_mib: int | None


@dataclass(frozen=True)
class GpuHolder:
    """A process that holds GPU memory."""

    pid: int
    gpu_uuid: str
    used_mib: int | None
    name: str | None
    owner: str | None


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


@dataclass(frozen=True)
class CollectedFile:
    """A file that was kept."""

    path: str
    """As found: relative to the folder it was looked for in, absolute where it was named so."""
    size: int
    sha256: str


@dataclass(frozen=True)
class Collected:
    """What was kept, where, and what was not and why."""

    folder: str
    files: tuple[CollectedFile, ...] = ()
    warnings: tuple[str, ...] = ()


class Host(Protocol):
    """A machine that experiments run on. Every call is short and may be repeated."""

    @property
    def name(self) -> str:
        """The name it is registered under."""

    def unit(self, name: str) -> UnitState:
        """Observe a unit."""

    def units(self) -> tuple[UnitState, ...]:
        """Every unit of ours that this host knows, ended ones included."""

    def start_unit(self, definition: UnitDefinition) -> UnitState:
        """Start a unit that does not run. Raises HostError where that is not possible."""

    def stop_unit(self, name: str, grace_s: float = 15.0) -> UnitState:
        """End a unit and all its processes: TERM, then KILL after `grace_s`. Nothing to do is fine."""

    def read_log(self, name: str, cursor: str | None, limit_bytes: int = 262_144) -> LogChunk:
        """Whole log lines after `cursor` (None: from the start of the unit's present invocation)."""

    def port_owner(self, port: int) -> PortOwner | None:
        """Who listens on `port`; None where nobody does."""

    def gpus(self) -> GpuReading:
        """The GPUs, their memory and who holds it."""

    def facts(self) -> dict[str, object]:
        """Provenance: kernel, CPU, memory, driver, GPU names."""

    def work_folder(self, name: str) -> str:
        """A unit's own folder to work in, made where it is missing and never emptied."""

    def collect_files(self, patterns: Sequence[str], cwd: str, label: str, limit_bytes: int, tick: Callable[[], None]) -> Collected:
        """Keep copies of the files under `cwd` that match, in a folder of that label in the data folder.

        Copies of an earlier call with the label are replaced. Takes as long as the files are large: `tick` is called meanwhile,
        and what it raises ends the work. HostError where `cwd` is gone or nothing can be written.
        """


class HostError(Exception):
    """The host could not do it. `reason` is a value of `service.domain.reasons.Reason`."""

    def __init__(self, reason: str, evidence: str) -> None:
        super().__init__(f"{reason}: {evidence}")
        self.reason = reason
        self.evidence = evidence
