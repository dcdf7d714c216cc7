"""A host behind a wire that breaks now and then: every call is repeated until the host answers again, for a while.

All calls of a Host may be repeated, so nothing is done twice by it. What is waited for is the wire alone: a command that ran
and failed, a key that changed, or a login that was refused, is news at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from service.domain.reasons import Reason
from workers.hosts.base import (
    Collected,
    DeadManFired,
    HostBusy,
    LogChunk,
    ParkedUnit,
    PortOwner,
    ProcessInfo,
    ProductionHost,
    RestoredUnit,
    ShmUsage,
    UnitDefinition,
    UnitSource,
    UnitState,
)
from workers.hosts.gpu_reading import GpuReading
from workers.hosts.transport import TransportError

PASSING = frozenset({Reason.HOST_UNREACHABLE, Reason.CONNECTION_LOST, Reason.CONNECTION_REFUSED})
"""A host that is booting refuses connections for a while."""
BOOTING = frozenset({Reason.AUTH_FAILED})
"""And then logins, of all but root. Only behind one of the others: a login that is refused out of the blue is news."""

STALL_S = 8.0
"""A look that takes longer, and many times as long as they usually do, had a wire that was broken and repaired itself beneath us: TCP
bridges some 25 s without a word. A host whose looks are slow by themselves is slow each time."""
STALL_TIMES = 10.0
WEIGHT = 0.2
"""Of the latest look in what is usual."""

Answer = TypeVar("Answer")


class Watcher(Protocol):
    """Who is told of an outage, and decides how long to wait."""

    def lost(self, error: TransportError, *, first: bool) -> None:
        """The host did not answer. Returns after a pause to try again; raises where it has lasted too long, or is not to go on."""

    def back(self) -> None:
        """It answers again."""

    def busy(self, error: HostBusy, since: float) -> None:
        """Another call is at work there since before that moment of time.monotonic(). As `lost`."""


class PatientHost:
    """Another host, with patience."""

    def __init__(self, host: ProductionHost, watcher: Watcher) -> None:
        self._host, self._watcher = host, watcher
        self.outages = 0
        """How often the host was lost since this object was made: what was measured across an outage may not be believed."""
        self.stalls = 0
        """How often the wire stood still and went on by itself: streams over it stood still, too."""
        self._usual_s: float | None = None

    def _patiently(self, call: Callable[[], Answer]) -> Answer:
        first, began = True, time.monotonic()
        while True:
            try:
                answer = call()
            except HostBusy as error:
                self._watcher.busy(error, began)
                continue
            except TransportError as error:
                if error.reason not in (PASSING if first else PASSING | BOOTING):
                    raise
                self.outages += int(first)
                self._watcher.lost(error, first=first)
                first = False
                continue
            if not first:
                self._watcher.back()
            return answer

    def _promptly(self, call: Callable[[], Answer]) -> Answer:
        """A look that usually takes a moment."""
        outages, began = self.outages, time.monotonic()
        answer = self._patiently(call)
        took = time.monotonic() - began
        if outages != self.outages:
            return answer
        if self._usual_s is not None and took > max(STALL_S, STALL_TIMES * self._usual_s):
            self.stalls += 1
        else:
            self._usual_s = took if self._usual_s is None else (1 - WEIGHT) * self._usual_s + WEIGHT * took
        return answer

    @property
    def name(self) -> str:
        """The name it is registered under."""
        return self._host.name

    @property
    def poll_s(self) -> float:
        """As often as the host itself says."""
        return self._host.poll_s

    @property
    def run_as(self) -> str | None:
        """As the host itself says."""
        return self._host.run_as

    def unit(self, name: str) -> UnitState:
        """Observe a unit."""
        return self._promptly(lambda: self._host.unit(name))

    def units(self) -> tuple[UnitState, ...]:
        """Every unit of ours."""
        return self._patiently(self._host.units)

    def running(self, names: Sequence[str]) -> tuple[str, ...]:
        """Which of these live."""
        return self._patiently(lambda: self._host.running(names))

    def given_back(self) -> DeadManFired | None:
        """Whether it has given production back by itself."""
        return self._patiently(self._host.given_back)

    def source(self, name: str) -> UnitSource:
        """An existing unit."""
        return self._patiently(lambda: self._host.source(name))

    def start_unit(self, definition: UnitDefinition) -> UnitState:
        """Start a unit; one that was started just before the wire broke is adopted."""
        return self._patiently(lambda: self._host.start_unit(definition))

    def stop_unit(self, name: str, grace_s: float = 15.0) -> UnitState:
        """End a unit."""
        return self._patiently(lambda: self._host.stop_unit(name, grace_s))

    def forget_unit(self, name: str) -> None:
        """Remove what is kept of an ended unit."""
        self._patiently(lambda: self._host.forget_unit(name))

    def end_process(self, pid: int, start_ticks: int, why: str) -> bool:
        """End one process."""
        return self._patiently(lambda: self._host.end_process(pid, start_ticks, why))

    def read_log(self, name: str, cursor: str | None, limit_bytes: int = 262_144) -> LogChunk:
        """Log lines after a cursor."""
        return self._promptly(lambda: self._host.read_log(name, cursor, limit_bytes))

    def port_owner(self, port: int) -> PortOwner | None:
        """Who listens on a port."""
        return self._patiently(lambda: self._host.port_owner(port))

    def gpus(self) -> GpuReading:
        """The GPUs."""
        return self._patiently(self._host.gpus)

    def processes(self, pids: Sequence[int]) -> Mapping[int, ProcessInfo]:
        """What is known of these processes."""
        return self._patiently(lambda: self._host.processes(pids))

    def gpu_state(self) -> list[dict[str, str]]:
        """Clocks, power, temperature."""
        return self._patiently(self._host.gpu_state)

    def shm(self) -> ShmUsage | None:
        """How full /dev/shm is."""
        return self._patiently(self._host.shm)

    def facts(self) -> dict[str, object]:
        """Provenance."""
        return self._patiently(self._host.facts)

    def look(self, question: Mapping[str, Any], deadline_s: float = 30.0) -> Mapping[str, Any]:
        """What is there."""
        return self._patiently(lambda: self._host.look(question, deadline_s))

    def work_folder(self, name: str) -> str:
        """A folder to work in."""
        return self._patiently(lambda: self._host.work_folder(name))

    def collect_files(self, patterns: Sequence[str], cwd: str, label: str, limit_bytes: int, tick: Callable[[], None]) -> Collected:
        """Keep copies of files."""
        return self._patiently(lambda: self._host.collect_files(patterns, cwd, label, limit_bytes, tick))

    def arm(self, ttl_s: float, parked: Sequence[ParkedUnit] | None = None) -> None:
        """Arm the dead-man."""
        self._patiently(lambda: self._host.arm(ttl_s, parked))

    def restore(self) -> tuple[RestoredUnit, ...]:
        """Start what was parked."""
        return self._patiently(self._host.restore)

    def disarm(self, *, force: bool = False) -> None:
        """Nothing is left to be restored."""
        self._patiently(lambda: self._host.disarm(force=force))

    def work_folders(self) -> tuple[str, ...]:
        """Units with a folder to work in."""
        return self._patiently(self._host.work_folders)

    def remove_work_folder(self, name: str) -> bool:
        """Remove such a folder."""
        return self._patiently(lambda: self._host.remove_work_folder(name))
