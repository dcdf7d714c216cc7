"""A host in memory, for tests of what is built on hosts: everything it will say can be set, everything asked is noted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from service.domain.reasons import Reason
from workers.hosts.base import (
    Collected,
    DeadManFired,
    HostError,
    LogChunk,
    PortOwner,
    ProcessInfo,
    ShmUsage,
    UnitDefinition,
    UnitPhase,
    UnitSource,
    UnitState,
)
from workers.hosts.gpu_reading import GpuReading

FIRST_PID = 1000


@dataclass
class FakeHost:
    """Set `gpu_reading`, `port_owners`, `host_facts`; drive units with `say`, `end`, `leave_over`; break calls with `fail`."""

    name: str = "fake"
    gpu_reading: GpuReading = field(default_factory=lambda: GpuReading(known=True, tool="none", no_gpus=True))
    gpu_readings: list[GpuReading] = field(default_factory=list)
    """Given one a call, in order, before `gpu_reading`."""
    gpu_states: list[dict[str, str]] = field(default_factory=list)
    shm_usage: ShmUsage | None = None
    run_as: str | None = "expctl"
    living: dict[int, ProcessInfo] = field(default_factory=dict)
    """Processes beside those of the units."""
    port_owners: dict[int, PortOwner] = field(default_factory=dict)
    host_facts: dict[str, object] = field(default_factory=lambda: {"kernel": "fake"})
    collected: dict[str, Collected] = field(default_factory=dict)
    """Label -> what there is to collect."""
    states: dict[str, UnitState] = field(default_factory=dict)
    definitions: dict[str, UnitDefinition] = field(default_factory=dict)
    logs: dict[str, list[str]] = field(default_factory=dict)
    """Lines of the present invocation."""
    outages: int = 0
    stalls: int = 0
    looks: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """What a look finds."""
    sources: dict[str, UnitSource] = field(default_factory=dict)
    """Existing units that may be forked or parked."""
    calls: list[tuple[str, str]] = field(default_factory=list)
    """Every call: its name, and the unit or port it was about."""
    _failures: dict[str, list[HostError]] = field(default_factory=dict)
    _starts: int = 0

    def fail(self, call: str, reason: Reason, evidence: str = "scripted", times: int = 1) -> None:
        """Let the next calls of that name raise."""
        self._failures.setdefault(call, []).extend(HostError(reason, evidence) for _ in range(times))

    def say(self, name: str, *lines: str) -> None:
        """Append to a unit's log."""
        self.logs.setdefault(name, []).extend(lines)

    def end(self, name: str, exit_status: int | None = 0, signal: int | None = None, left_over: tuple[int, ...] = ()) -> None:
        """Let a unit's main process end by itself."""
        self.states[name] = replace(
            self.states[name], phase=UnitPhase.ENDED, main_pid=None, exit_status=exit_status, signal=signal, left_over_pids=left_over
        )

    def listen(self, name: str, port: int) -> None:
        """Let a unit own a port."""
        self.port_owners[port] = PortOwner(port, self.states[name].main_pid, name, name)

    def processes(self, pids: Sequence[int]) -> Mapping[int, ProcessInfo]:
        """Those that live."""
        self._called("processes", ",".join(str(pid) for pid in pids))
        return {pid: self.living[pid] for pid in pids if pid in self.living}

    def end_process(self, pid: int, start_ticks: int, why: str) -> bool:  # noqa: ARG002 - the seam's signature
        """End one at once: it holds no port and no GPU memory of `gpu_reading` any more."""
        self._called("end_process", str(pid))
        self.port_owners = {port: owner for port, owner in self.port_owners.items() if owner.pid != pid}
        left = tuple(holder for holder in self.gpu_reading.holders if holder.pid != pid)
        self.gpu_reading = replace(self.gpu_reading, holders=left)
        return self.living.pop(pid, None) is not None

    @property
    def poll_s(self) -> float:
        """As often as anyone likes."""
        return 0.5

    def running(self, names: Sequence[str]) -> tuple[str, ...]:
        """Which of these live."""
        self._called("running", ",".join(names))
        return tuple(name for name in names if self._state(name).phase == UnitPhase.ACTIVE)

    def given_back(self) -> DeadManFired | None:
        """Nothing is ever parked here."""
        return None

    def source(self, name: str) -> UnitSource:
        """What was set for the name."""
        self._called("source", name)
        if name not in self.sources:
            raise HostError(Reason.REMOTE_COMMAND_FAILED, f"{name} is not known")
        return self.sources[name]

    def unit(self, name: str) -> UnitState:
        """Observe a unit."""
        self._called("unit", name)
        return self._state(name)

    def units(self) -> tuple[UnitState, ...]:
        """Every unit that was ever started."""
        self._called("units", "")
        return tuple(self.states.values())

    def start_unit(self, definition: UnitDefinition) -> UnitState:
        """Start a unit; adopt it where it already runs with the same definition."""
        name = definition.name
        self._called("start_unit", name)
        if self._state(name).phase == UnitPhase.ACTIVE:
            if self.definitions[name] != definition:
                raise HostError(Reason.STALE_UNIT_DEFINITION, f"{name} is already running with another definition")
            return self._state(name)
        self._starts += 1
        self.definitions[name] = definition
        self.logs[name] = []
        self.states[name] = UnitState(name, UnitPhase.ACTIVE, f"invocation{self._starts}", FIRST_PID + self._starts, argv=definition.argv)
        return self.states[name]

    def stop_unit(self, name: str, grace_s: float = 15.0) -> UnitState:  # noqa: ARG002 - the seam's signature
        """End a unit at once, by SIGTERM."""
        self._called("stop_unit", name)
        state = self._state(name)
        if state.phase == UnitPhase.ACTIVE:
            self.end(name, exit_status=None, signal=15)
        elif state.left_over_pids:
            self.states[name] = replace(state, left_over_pids=())
        self.port_owners = {port: owner for port, owner in self.port_owners.items() if name not in {owner.unit, owner.service}}
        return self._state(name)

    def forget_unit(self, name: str) -> None:
        """Forget one that has ended."""
        self._called("forget_unit", name)
        if self._state(name).phase != UnitPhase.ACTIVE:
            self.states.pop(name, None)

    def read_log(self, name: str, cursor: str | None, limit_bytes: int = 262_144) -> LogChunk:  # noqa: ARG002 - the seam's signature
        """Every line after the cursor, which counts lines here."""
        self._called("read_log", name)
        invocation = self._state(name).invocation_id or ""
        known, _, number = (cursor or "").rpartition(":")
        lines = self.logs.get(name, [])
        return LogChunk(tuple(lines[int(number) if known == invocation and number else 0 :]), f"{invocation}:{len(lines)}", at_end=True)

    def port_owner(self, port: int) -> PortOwner | None:
        """Who listens on `port`."""
        self._called("port_owner", str(port))
        return self.port_owners.get(port)

    def gpus(self) -> GpuReading:
        """The next reading."""
        self._called("gpus", "")
        return self.gpu_readings.pop(0) if self.gpu_readings else self.gpu_reading

    def gpu_state(self) -> list[dict[str, str]]:
        """What was set."""
        self._called("gpu_state", "")
        return self.gpu_states

    def shm(self) -> ShmUsage | None:
        """What was set."""
        self._called("shm", "")
        return self.shm_usage

    def facts(self) -> dict[str, object]:
        """What was set."""
        self._called("facts", "")
        return dict(self.host_facts)

    def look(self, question: Mapping[str, Any], deadline_s: float = 30.0) -> Mapping[str, Any]:
        """What `looks` has for the question; without it this host cannot be looked at."""
        self._called("look", f"{deadline_s:g}")
        if self.looks is None:
            raise HostError(Reason.REMOTE_COMMAND_FAILED, "nobody can look here")
        return self.looks(question)

    def work_folder(self, name: str) -> str:
        """A name; nothing is made."""
        self._called("work_folder", name)
        return f"/work/{name}"

    def collect_files(self, patterns: Sequence[str], cwd: str, label: str, limit_bytes: int, tick: Callable[[], None]) -> Collected:  # noqa: ARG002 - the seam's signature
        """What was set for the label, else nothing."""
        self._called("collect_files", cwd)
        tick()
        return self.collected.get(label) or Collected(f"/artifacts/{label}")

    def _state(self, name: str) -> UnitState:
        return self.states.get(name) or UnitState(name, UnitPhase.NOT_FOUND)

    def _called(self, call: str, about: str) -> None:
        self.calls.append((call, about))
        waiting = self._failures.get(call)
        if waiting:
            raise waiting.pop(0)
