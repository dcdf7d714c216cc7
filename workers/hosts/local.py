"""The machine this worker runs on, with plain processes: no systemd, no root needed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
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
from workers.hosts.collecting import collect
from workers.hosts.ending import describe_processes, end_process
from workers.hosts.gpu_reading import GpuReading
from workers.hosts.gpus import GpuTools
from workers.hosts.local_transport import LocalTransport
from workers.hosts.logs import read_chunk
from workers.hosts.looking import look
from workers.hosts.machine import machine_facts
from workers.hosts.ports import listening_inodes, socket_owners
from workers.hosts.process import Process, all_processes, command_line, describe, own_user, same_process, send_signal
from workers.hosts.shm import shm_usage
from workers.hosts.spawning import spawn
from workers.hosts.units import (
    ExitRecord,
    UnitFolder,
    UnitRecord,
    difference,
    main_by_marker,
    members,
    os_errors,
    reap,
    unit_of,
)
from workers.hosts.usage import age_s, used_by

POLL_S = 0.05
SETTLE_S = 1.0


class LocalHost:
    """This machine. Units live in `data_dir`/units, outlive the worker, and are found again by any later one."""

    def __init__(
        self,
        name: str,
        data_dir: Path,
        nvidia_smi: str = "nvidia-smi",
        *,
        gpu_timeout_s: float = 20.0,
        start_timeout_s: float = 30.0,
        kill_timeout_s: float = 20.0,
        devices: Path = Path("/dev"),
    ) -> None:
        self._name = name
        self._data = data_dir.resolve()
        self._units = self._data / "units"
        self._transport = LocalTransport()
        self._gpus = GpuTools(self._transport, nvidia_smi, timeout_s=gpu_timeout_s, devices=str(devices))
        self._start_timeout_s = start_timeout_s
        self._kill_timeout_s = kill_timeout_s

    @property
    def name(self) -> str:
        """The name it is registered under."""
        return self._name

    @property
    def run_as(self) -> str:
        """Everything runs as the worker's own user."""
        return own_user()

    @property
    def poll_s(self) -> float:
        """A look costs little here."""
        return 0.5

    @property
    def outages(self) -> int:
        """One cannot be out of one's own reach."""
        return 0

    @property
    def stalls(self) -> int:
        """There is no wire."""
        return 0

    def running(self, names: Sequence[str]) -> tuple[str, ...]:
        """Which of these live; without a service manager only units of ours can."""
        return tuple(name for name in names if self.unit(name).phase == UnitPhase.ACTIVE)

    def given_back(self) -> DeadManFired | None:
        """Nothing is ever parked here."""
        return None

    def source(self, name: str) -> UnitSource:
        """There is no service manager here to ask."""
        raise HostError(Reason.REMOTE_COMMAND_FAILED, f"{name} cannot be forked: this host keeps plain processes, not systemd units")

    def unit(self, name: str) -> UnitState:
        """Observe a unit by its recorded pid and start time."""
        folder = UnitFolder(self._units, name)
        record = folder.record()
        if record is not None and record.pid is None:
            if not folder.wait_for_start(self._start_timeout_s):
                return UnitState(name, UnitPhase.UNKNOWN, record.invocation_id)
            record = folder.record()
        return self._observe(folder, record)

    def units(self) -> tuple[UnitState, ...]:
        """Every unit that was ever started on this host, ended ones included; others may be kept in the same folder."""
        return tuple(self.unit(name) for name in self._names())

    def start_unit(self, definition: UnitDefinition) -> UnitState:
        """Start a unit; one that already runs with this definition is adopted as it is.

        Raises HostError: stale_unit_definition where it runs with another definition, orphan_process where processes of an
        earlier start still live, exec_failed where the program cannot be started.
        """
        if not definition.argv:
            raise HostError(Reason.UNIT_SYNTAX, f"{definition.name} has nothing to run")
        if definition.user is not None and not _is_own_user(definition.user):
            who = f"{definition.name} is to run as {definition.user}, but this host runs everything as {own_user()}"
            raise HostError(Reason.PERMISSION_DENIED, who)
        folder = UnitFolder(self._units, definition.name)
        with folder.locked(self._start_timeout_s) as lock, os_errors():
            record = folder.record()
            state = self._observe(folder, record)
            if state.phase == UnitPhase.ACTIVE and record is not None:
                changed = difference(record, definition)
                if changed:
                    raise HostError(Reason.STALE_UNIT_DEFINITION, f"{definition.name} is already running, and {changed}")
                return state
            if state.left_over_pids:
                pids = ", ".join(str(pid) for pid in state.left_over_pids)
                raise HostError(Reason.ORPHAN_PROCESS, f"processes of an earlier start of {definition.name} still live: {pids}")
            spawn(folder, definition, self._name, lock, self._start_timeout_s)
        return self.unit(definition.name)

    def stop_unit(self, name: str, grace_s: float = 15.0) -> UnitState:
        """TERM to every process of the unit, KILL after `grace_s`; HostError(unkillable_process) where one survives."""
        folder = UnitFolder(self._units, name)
        if not folder.path.exists():
            return self.unit(name)
        with folder.locked(self._start_timeout_s + grace_s):
            signalled: set[tuple[int, int]] = set()
            if not self._until_gone(folder, grace_s, lambda process: _once(process, signal.SIGTERM, signalled)):
                # Again and again: a process may fork between the look and the blow.
                self._until_gone(folder, self._kill_timeout_s, lambda process: _once(process, signal.SIGKILL, set()))
            survivors = self._members(folder)
            if survivors:
                raise HostError(Reason.UNKILLABLE_PROCESS, f"still there after SIGKILL: {describe(survivors)}")
            self._await_ending(folder)
        return self.unit(name)

    def forget_unit(self, name: str) -> None:
        """Remove its folder."""
        folder = UnitFolder(self._units, name)
        if not folder.path.exists():
            return
        with folder.locked(self._start_timeout_s), os_errors():
            if self._observe(folder, folder.record()).phase != UnitPhase.ACTIVE and not self._members(folder):
                shutil.rmtree(folder.path)

    def processes(self, pids: Sequence[int]) -> Mapping[int, ProcessInfo]:
        """What /proc says of these processes; those that are gone are left out."""
        return describe_processes(pids, self._units)

    def end_process(self, pid: int, start_ticks: int, why: str) -> bool:  # noqa: ARG002 - the seam's signature
        """End one process of our own user, by its pid and start time."""
        return end_process(pid, start_ticks, kill_timeout_s=self._kill_timeout_s)

    def read_log(self, name: str, cursor: str | None, limit_bytes: int = 262_144) -> LogChunk:
        """Whole log lines after `cursor`; None reads from the start of the present invocation."""
        folder = UnitFolder(self._units, name)
        record = folder.record()
        if record is None:
            return LogChunk(lines=(), cursor=":0", at_end=True)
        with os_errors():
            return read_chunk(
                Path(record.log), record.invocation_id, record.log_start, cursor, limit_bytes, ended=lambda: self._silent(folder, record)
            )

    def port_owner(self, port: int) -> PortOwner | None:
        """Who listens on `port`. Where several do, one that is not ours is named, and `shared` is set."""
        owners = socket_owners(listening_inodes(port))
        if not owners:
            return None
        found = [self._port_owner(port, pids) for pids in owners.values()]
        stranger = next((one for one in found if one.unit is None), found[0])
        shared = len({one.unit or one.pid for one in found}) > 1
        return PortOwner(port, stranger.pid, stranger.command, stranger.unit, shared=shared)

    def gpus(self) -> GpuReading:
        """The GPUs, their memory and who holds it."""
        return self._gpus.read(self.processes)

    def gpu_state(self) -> list[dict[str, str]]:
        """Clocks, power, temperature and throttling a GPU, as the tool words them."""
        return self._gpus.state()

    def shm(self) -> ShmUsage | None:
        """How full /dev/shm is."""
        return shm_usage()

    def facts(self) -> dict[str, object]:
        """Kernel, processor, memory, driver, GPUs and their state."""
        return machine_facts(self._transport, self._gpus)

    def look(self, question: Mapping[str, Any], deadline_s: float = 30.0) -> Mapping[str, Any]:
        """With the worker's own eyes."""
        return look(self._transport, question, deadline_s, sys.executable)

    def work_folder(self, name: str) -> str:
        """`work`/<unit> in the data folder, made where it is missing."""
        folder = self._data / "work" / UnitFolder(self._units, name).name
        with os_errors():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return str(folder)

    def collect_files(self, patterns: Sequence[str], cwd: str, label: str, limit_bytes: int, tick: Callable[[], None]) -> Collected:
        """Copies go to `artifacts`/<label> in the data folder."""
        return collect(patterns, cwd, self._data / "artifacts" / UnitFolder(self._units, label).name, limit_bytes, tick)

    def _observe(self, folder: UnitFolder, record: UnitRecord | None) -> UnitState:
        table = all_processes()
        if record is None:
            return UnitState(folder.name, UnitPhase.NOT_FOUND)
        reap(record)
        main = self._main(record, table)
        if main is not None:
            argv, used = command_line(main.pid), used_by(main, table)
            return UnitState(folder.name, UnitPhase.ACTIVE, record.invocation_id, main.pid, argv=argv, used=used, age_s=age_s(main))
        ending, left = self._settled(folder, record, main_gone=True)
        if record.pid is None and ending is None and not left:
            return UnitState(folder.name, UnitPhase.NOT_FOUND)  # cut before the engine was started
        return UnitState(
            folder.name,
            UnitPhase.ENDED,
            record.invocation_id,
            exit_status=ending.exit_status if ending else None,
            signal=ending.signal if ending else None,
            left_over_pids=_pids(left),
            argv=record.argv,
        )

    def _main(self, record: UnitRecord, table: dict[int, Process]) -> Process | None:
        if not record.this_boot:
            return None
        if record.pid is None:
            return main_by_marker(record, table)
        return same_process(record.pid, record.start_ticks)

    def _members(self, folder: UnitFolder) -> list[Process]:
        record = folder.record()
        return self._settled(folder, record, main_gone=False)[1] if record is not None else []

    def _settled(self, folder: UnitFolder, record: UnitRecord, *, main_gone: bool) -> tuple[ExitRecord | None, list[Process]]:
        """How it ended and who is left, looked at again while the supervisor has not said its word.

        A process whose parent ends during the look hangs for that look on a parent that is not there and is not seen; and the
        supervisor needs a moment to write down what it has just been told.
        """
        deadline = time.monotonic() + SETTLE_S
        while True:
            ending = folder.ending(record)
            found = members(record, ending, all_processes())
            watched = record.this_boot and same_process(record.supervisor_pid, record.supervisor_ticks) is not None
            said = ending is not None and (ending.drained or bool(found))
            if not watched or said or (found and not main_gone) or time.monotonic() > deadline:
                # What the supervisor wrote last, it may have written since.
                return (ending if watched else folder.ending(record)), found
            time.sleep(POLL_S / 10)

    def _until_gone(self, folder: UnitFolder, within_s: float, act: Callable[[Process], None]) -> bool:
        deadline = time.monotonic() + within_s
        while True:
            left = self._members(folder)
            if not left:
                return True
            if time.monotonic() > deadline:
                return False
            for process in left:
                act(process)
            time.sleep(POLL_S)

    def _await_ending(self, folder: UnitFolder) -> None:
        """Give the supervisor the moment it needs to write down how the engine ended."""
        record = folder.record()
        deadline = time.monotonic() + 5.0
        while record is not None and time.monotonic() < deadline:
            ending = folder.ending(record)
            alive = record.this_boot and same_process(record.supervisor_pid, record.supervisor_ticks) is not None
            if not alive or (ending is not None and ending.drained):
                return
            time.sleep(POLL_S)

    def _silent(self, folder: UnitFolder, record: UnitRecord) -> bool:
        """Whether nobody of the unit is left who could write a log line."""
        state = self._observe(folder, record)
        return state.phase in {UnitPhase.ENDED, UnitPhase.NOT_FOUND} and not state.left_over_pids

    def _names(self) -> list[str]:
        names = sorted(entry.name for entry in self._units.iterdir()) if self._units.is_dir() else []
        records = {name: UnitFolder(self._units, name).record() for name in names}
        return [name for name, record in records.items() if record is None or record.host in {None, self._name}]

    def _port_owner(self, port: int, pids: list[int]) -> PortOwner:
        for pid in pids:
            unit = unit_of(self._units, pid)
            if unit is not None:
                return PortOwner(port, pid, " ".join(command_line(pid)), unit)
        pid_or_none = pids[0] if pids else None
        return PortOwner(port, pid_or_none, " ".join(command_line(pids[0])) if pids else None, None)


def _is_own_user(user: str) -> bool:
    return user in {own_user(), str(os.geteuid())}


def _pids(processes: list[Process]) -> tuple[int, ...]:
    return tuple(process.pid for process in processes)


def _once(process: Process, number: signal.Signals, done: set[tuple[int, int]]) -> None:
    if (process.pid, process.start_ticks) in done:
        return
    done.add((process.pid, process.start_ticks))
    with contextlib.suppress(PermissionError):  # it will be named among the survivors
        send_signal(process, number)
