"""A host in memory, for tests of what is built on hosts: everything it will say can be set, everything asked is noted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from service.domain.reasons import Reason
from workers.hosts.base import Collected, GpuReading, HostError, LogChunk, PortOwner, UnitDefinition, UnitPhase, UnitState

FIRST_PID = 1000


@dataclass
class FakeHost:
    """Set `gpu_reading`, `port_owners`, `host_facts`; drive units with `say`, `end`, `leave_over`; break calls with `fail`."""

    name: str = "fake"
    gpu_reading: GpuReading = field(default_factory=lambda: GpuReading(known=True, tool="none", no_gpus=True))
    gpu_readings: list[GpuReading] = field(default_factory=list)
    """Given one a call, in order, before `gpu_reading`."""
    port_owners: dict[int, PortOwner] = field(default_factory=dict)
    host_facts: dict[str, object] = field(default_factory=lambda: {"kernel": "fake"})
    collected: dict[str, Collected] = field(default_factory=dict)
    """Label -> what there is to collect."""
    states: dict[str, UnitState] = field(default_factory=dict)
    definitions: dict[str, UnitDefinition] = field(default_factory=dict)
    logs: dict[str, list[str]] = field(default_factory=dict)
    """Lines of the present invocation."""
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
        self.port_owners = {port: owner for port, owner in self.port_owners.items() if owner.unit != name}
        return self._state(name)

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

    def facts(self) -> dict[str, object]:
        """What was set."""
        self._called("facts", "")
        return dict(self.host_facts)

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
