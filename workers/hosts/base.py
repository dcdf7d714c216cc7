"""What a host can be asked: the seam between the steps and a machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from workers.hosts.gpu_reading import GpuReading


class UnitPhase(StrEnum):
    """Where a unit is."""

    NOT_FOUND = "not_found"  # never started here
    ACTIVE = "active"  # its main process lives
    ENDED = "ended"  # its main process is gone
    UNKNOWN = "unknown"  # the host could not say; never taken for any of the others


@dataclass(frozen=True)
class UnitSource:
    """An existing unit of a service manager, as its files and the manager have it: what may be forked or parked."""

    name: str
    files: tuple[tuple[str, str], ...]
    """(path, text) of the unit's file, then of each drop-in, in the order in which they apply."""
    sha256: str
    """Over all files: a change of any of them changes it."""
    properties: Mapping[str, str]
    """As `systemctl show` gives them."""
    live_argv: tuple[str, ...] = ()
    """Of the running main process; empty where none runs."""
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Environment of the running main process, or of the files where none runs; values may be secrets."""
    written_variables: Mapping[str, str] | None = field(default=None, repr=False)
    """What its files would give to a start at this moment; None where that is not known."""
    changed: tuple[str, ...] = ()
    """Of a unit that runs: its files, environment files too, that were touched after its main process had started."""
    missing: tuple[str, ...] = ()
    """Of a unit that runs: files without which it would not start again."""
    taken_along: tuple[str, ...] = ()
    """Of a unit that runs: living units that are stopped with it, and that its start would not bring back."""


@dataclass(frozen=True)
class Fork:
    """Take an existing unit's whole definition, and only another command line."""

    from_unit: str
    words: tuple[str, ...]
    """Words of ExecStart without quotes, but with `%` and `$` still alive: `%%` and `$$` stand for themselves."""


@dataclass(frozen=True)
class UnitDefinition:
    """What to run. `env` is added to the host's own environment; its values may be secrets and are not shown."""

    name: str
    argv: tuple[str, ...]
    """Of a fork: what /proc is expected to show."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    user: str | None = None
    """Who runs it; None: whoever the host runs things as."""
    fork: Fork | None = None
    conflicts: tuple[str, ...] = ()
    """Units that must not run beside it: whoever starts one of them ends this one."""
    once: str | None = None
    """Set for a program that does its work and ends: the invocation that its unit had before, or an empty text. It is started only
    where that is still so, since a call that is repeated must not start it twice; and how it ended is kept."""


@dataclass(frozen=True)
class Usage:
    """What a unit's living processes have used since they began; None where that cannot be seen. It falls when one of them ends."""

    cpu_s: float | None = None
    read_bytes: int | None = None
    """From disks, and by calls whatever the data came from: a file that the kernel held in memory moves the second only."""


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
    result: str | None = None
    """What the service manager says of the ending, such as exit-code, signal, oom-kill, timeout, start-limit-hit."""
    restarts: int = 0
    """How often the service manager has started it again by itself."""
    left_over_pids: tuple[int, ...] = ()
    """Processes of an ended unit that still live."""
    boot_id: str | None = None
    """Tells one boot of the host from another, where that was asked."""
    argv: tuple[str, ...] = ()
    """What the main process shows in /proc while it lives (a program may rewrite it, as vLLM does: `VLLM::APIServer`, and a
    script is shown with its interpreter); once it has ended, what was asked for."""
    used: Usage | None = field(default=None, compare=False)
    """Of one that lives; None where it was not looked at. It changes with every look, so it tells no state from another."""
    age_s: float | None = field(default=None, compare=False)
    """How long the main process of one that lives has run, by the host's clock that nobody can set; None where that is not known."""


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
    service: str | None = None
    """The service manager's unit that it belongs to, ours or not, where there is one."""
    shared: bool = False
    """True where sockets of several owners listen on the port; then one that is not ours is named, if there is one."""


@dataclass(frozen=True)
class ProcessInfo:
    """What /proc says of a live process; None where it cannot be seen."""

    pid: int
    name: str | None = None
    """Its title: the command line as it shows it (vLLM's says `VLLM::EngineCore`), else the name of its program."""
    owner: str | None = None
    unit: str | None = None
    """The unit that it belongs to, a living one or one that has ended; None where it belongs to none."""
    state: str | None = None
    """One letter, such as R, S, D, Z."""
    start_ticks: int | None = None
    """With the pid, what tells this process from a later one. Without it no process is ever ended."""
    unit_lives: bool | None = None
    """Whether that unit still runs, by the service manager's own word; None where it was not asked."""


@dataclass(frozen=True)
class ShmUsage:
    """Shared memory (/dev/shm), which NCCL and the engines' workers talk through."""

    used_mib: int
    total_mib: int
    left_over: tuple[str, ...] = ()
    """Files that engines of our own left there and that no living process maps, as far as that is known."""


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


@dataclass(frozen=True)
class ParkedUnit:
    """A unit of production as it was before it was stopped."""

    name: str
    sha256: str
    live_argv: tuple[str, ...]


@dataclass(frozen=True)
class RestoredUnit:
    """What became of a unit of production."""

    name: str
    active: bool
    message: str = ""


class Host(Protocol):
    """A machine that experiments run on. Every call is short and may be repeated."""

    @property
    def name(self) -> str:
        """The name it is registered under."""

    @property
    def poll_s(self) -> float:
        """How often it may be looked at, seconds: a look costs more from afar."""

    @property
    def outages(self) -> int:
        """How often it was out of reach since this object was made: what was measured across an outage may not be believed."""

    @property
    def stalls(self) -> int:
        """How often the wire to it stood still for seconds and went on by itself, since this object was made."""

    def unit(self, name: str) -> UnitState:
        """Observe a unit."""

    def units(self) -> tuple[UnitState, ...]:
        """Every unit of ours that this host knows, ended ones included."""

    def running(self, names: Sequence[str]) -> tuple[str, ...]:
        """Which of these units, ours or not, live at this moment."""

    def given_back(self) -> DeadManFired | None:
        """Whether this host has given production back by itself, because nobody had renewed its deadline; None where it has not."""

    def source(self, name: str) -> UnitSource:
        """An existing unit, to be forked or parked. HostError where there is none, or no service manager."""

    def start_unit(self, definition: UnitDefinition) -> UnitState:
        """Start a unit that does not run. Raises HostError where that is not possible."""

    def stop_unit(self, name: str, grace_s: float = 15.0) -> UnitState:
        """End a unit and all its processes: TERM, then KILL after `grace_s`. Nothing to do is fine."""

    @property
    def run_as(self) -> str | None:
        """The user that experiments run as; None where that is not known, and then no process counts as ours."""

    def processes(self, pids: Sequence[int]) -> Mapping[int, ProcessInfo]:
        """What is known of these processes; those that are gone are left out."""

    def end_process(self, pid: int, start_ticks: int, why: str) -> bool:
        """End one process that no unit has any more: TERM, then KILL. False: it was gone already.

        HostError: unkillable_process where it survives KILL, permission_denied where it may not be ended.
        """

    def forget_unit(self, name: str) -> None:
        """Remove all that is kept of an ended unit, its log included; one that lives, or has left something over, is kept."""

    def read_log(self, name: str, cursor: str | None, limit_bytes: int = 262_144) -> LogChunk:
        """Whole log lines after `cursor` (None: from the start of the unit's present invocation)."""

    def port_owner(self, port: int) -> PortOwner | None:
        """Who listens on `port`; None where nobody does."""

    def gpus(self) -> GpuReading:
        """The GPUs, their memory and who holds it."""

    def gpu_state(self) -> list[dict[str, str]]:
        """Clocks, power, temperature and throttling a GPU, as the tool words them; empty where it does not say."""

    def shm(self) -> ShmUsage | None:
        """How full /dev/shm is; None where that is not known."""

    def facts(self) -> dict[str, object]:
        """Provenance: kernel, CPU, memory, driver, GPU names."""

    def look(self, question: Mapping[str, Any], deadline_s: float = 30.0) -> Mapping[str, Any]:
        """What is there: paths, models, programs, disks, as `lookscript` asks and answers. Changes nothing."""

    def work_folder(self, name: str) -> str:
        """A unit's own folder to work in, made where it is missing and never emptied."""

    def collect_files(self, patterns: Sequence[str], cwd: str, label: str, limit_bytes: int, tick: Callable[[], None]) -> Collected:
        """Keep copies of the files under `cwd` that match, in a folder of that label in the data folder.

        Copies of an earlier call with the label are replaced. Takes as long as the files are large: `tick` is called meanwhile,
        and what it raises ends the work. HostError where `cwd` is gone or nothing can be written.
        """


class ProductionHost(Host, Protocol):
    """A host that can park what serves on it, and that gives it back by itself when nobody is left who would."""

    def arm(self, ttl_s: float, parked: Sequence[ParkedUnit] | None = None) -> None:
        """Let the host restore production by itself after `ttl_s` seconds without another call.

        `parked` is what to restore, given with the first call. DeadManFired where it has already done so.
        """

    def restore(self) -> tuple[RestoredUnit, ...]:
        """End every unit of ours and start what was parked; may be repeated."""

    def disarm(self, *, force: bool = False) -> None:
        """Production is back: nothing is left to be restored. Refused while it is not active, unless forced."""

    def work_folders(self) -> tuple[str, ...]:
        """Names of the units that have a folder of their own to work in on this host."""

    def remove_work_folder(self, name: str) -> bool:
        """Remove an ended unit's folder with all that is in it. False: there is none. HostError where the unit lives, or it is none."""


class HostError(Exception):
    """The host could not do it. `reason` is a value of `service.domain.reasons.Reason`."""

    def __init__(self, reason: str, evidence: str) -> None:
        super().__init__(f"{reason}: {evidence}")
        self.reason = reason
        self.evidence = evidence


class HostBusy(HostError):
    """Nothing was done, since another call is at work there: what a worker that is gone has asked for goes on without it."""


class DeadManFired(HostError):
    """The host gave production back by itself; `fired_at` is when, by the host's clock, and `why`."""

    def __init__(self, reason: str, evidence: str, fired_at: str, why: str) -> None:
        super().__init__(reason, evidence)
        self.fired_at, self.why = fired_at, why

    @property
    def story(self) -> str:
        """In words."""
        return f"the host gave production back by itself at {self.fired_at} ({self.why})"
