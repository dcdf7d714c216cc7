"""A host whose units systemd keeps, reached through the host helper: on this machine, or by SSH."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from service.domain.reasons import Reason
from workers.hosts.base import (
    Collected,
    DeadManFired,
    HostError,
    LogChunk,
    ParkedUnit,
    PortOwner,
    ProcessInfo,
    RestoredUnit,
    ShmUsage,
    UnitDefinition,
    UnitPhase,
    UnitSource,
    UnitState,
    Usage,
)
from workers.hosts.fetching import Fetch
from workers.hosts.gpu_reading import GpuReading
from workers.hosts.gpus import GpuTools
from workers.hosts.helper_client import Helper, HelperRefused
from workers.hosts.looking import look
from workers.hosts.proof_of_argv import check_argv, expected_argvs

SUFFIX = ".service"
OURS = "expctl-"
WORK = "/var/lib/expctl-work"
"""Where the helper has systemd make the folders of commands."""
ENV = "/usr/bin/env"
LABEL = re.compile(r"[A-Za-z0-9_-]{1,100}")
EXITED, KILLED, DUMPED = 1, 2, 3
"""ExecMainCode: how the main process ended, as waitid(2) numbers it."""
LIVING = frozenset({"active", "activating", "reloading", "refreshing", "deactivating", "maintenance"})
REMOVAL_S = 300.0
"""How long the files of one folder may take to be removed: a training run may have left very many."""
START_CALLS = 6
"""How often a start that is still in ExecStartPre is looked at again, 20 s each."""
START_DEADLINE_S = 20


class SystemdHost:
    """Units are `<name>.service`; everything that changes the host carries this worker's claim."""

    def __init__(
        self, name: str, helper: Helper, gpus: GpuTools, *, run_as: str | None = None, like: str | None = None, data_dir: Path | None = None
    ) -> None:
        """`run_as` is who runs experiments; else it is whoever runs the unit `like`. `data_dir`: where artifacts are kept."""
        self._name, self._helper, self._gpus, self._run_as, self._like = name, helper, gpus, run_as, like
        self._data_dir = data_dir

    @property
    def name(self) -> str:
        """The name it is registered under."""
        return self._name

    @property
    def run_as(self) -> str | None:
        """Who runs experiments here, where that is known."""
        if self._run_as is None and self._like is not None:
            self._run_as = self.source(self._like).properties.get("User") or "root"
        return self._run_as

    @property
    def poll_s(self) -> float:
        """A look is a command over SSH, written into the host's log by sudo."""
        return 2.0

    @property
    def outages(self) -> int:
        """Without patience, a wire that breaks is an error at once."""
        return 0

    @property
    def stalls(self) -> int:
        """Nobody looks at the clock here."""
        return 0

    def unit(self, name: str) -> UnitState:
        """Observe a unit."""
        return state_of(self._helper.ask("status", unit=_full(name)))

    def units(self) -> tuple[UnitState, ...]:
        """Every unit of ours that systemd knows."""
        return tuple(state_of(status) for status in self._helper.ask("units")["units"])

    def running(self, names: Sequence[str]) -> tuple[str, ...]:
        """Which of these units live at this moment."""
        return tuple(name for name in names if self.unit(name).phase == UnitPhase.ACTIVE)

    def given_back(self) -> DeadManFired | None:
        """Whether the dead-man has acted; disarmed, it knows no more."""
        return _fired(Reason.CONNECTION_LOST, "the dead-man has acted", self._helper.ask("hello")["record"] or {})

    def source(self, name: str) -> UnitSource:
        """An existing unit's files, settings, and the command line it runs with."""
        found = self._helper.ask("source", unit=_full(name))
        return UnitSource(
            name=str(found["unit"]),
            files=tuple((str(path), str(text)) for path, text in found["files"]),
            sha256=str(found["sha256"]),
            properties=dict(found["show"]),
            live_argv=tuple(found["live_argv"]),
            variables=dict(found["variables"]),
            # A helper of an earlier version does not say.
            written_variables=found.get("written_variables"),
            changed=tuple(found.get("changed", ())),
            missing=tuple(found.get("missing", ())),
            taken_along=tuple(found.get("taken_along", ())),
        )

    def start_unit(self, definition: UnitDefinition) -> UnitState:
        """Write the unit, start it, and prove by /proc that it runs what was meant. Adopts one that runs with just that."""
        unit = _full(definition.name)
        state = self.unit(definition.name)
        if definition.once is not None and (state.phase == UnitPhase.ACTIVE or (state.invocation_id or "") != definition.once):
            return state
        if state.phase != UnitPhase.ACTIVE:
            fork = definition.fork
            self._helper.act(
                "write-unit",
                unit=unit,
                argv=None if fork else list(definition.argv if definition.once is None else _findable(definition.argv)),
                fork=None if fork is None else {"from_unit": _full(fork.from_unit), "words": list(fork.words)},
                env=dict(definition.env),
                cwd=None if definition.cwd == self.work_folder(definition.name) else definition.cwd,
                user=definition.user,
                conflicts=[_full(name) for name in definition.conflicts],
                # A helper of an earlier version refuses keys that it does not know.
                **({} if definition.once is None else {"once": True}),
            )
        started = self._start(unit)
        state = state_of(started)
        try:
            # What runs once may be a script that has become another program by the time of the look.
            if definition.once is None and (state.phase == UnitPhase.ACTIVE or started["seen_argv"]):
                expected = expected_argvs(definition, dict(started.get("variables") or {}))
                check_argv(unit, started["seen_argv"], expected, started["show"])
        except HostError:
            # It must not go on loading the wrong thing for an hour.
            self.stop_unit(definition.name)
            raise
        return state

    def _start(self, unit: str) -> dict[str, Any]:
        for _ in range(START_CALLS):
            answer = self._helper.act("start", timeout_s=START_DEADLINE_S + 30, unit=unit, deadline_s=START_DEADLINE_S)
            if answer["seen_argv"] or state_of(answer).phase != UnitPhase.ACTIVE:
                return answer
        waited = START_CALLS * START_DEADLINE_S
        raise HostError(Reason.SYSTEMD_START_TIMEOUT, f"{unit} has no main process {waited} s after its start: it is still in ExecStartPre")

    def stop_unit(self, name: str, grace_s: float = 15.0) -> UnitState:
        """End a unit and every process of its control group."""
        return state_of(self._helper.act("stop", timeout_s=grace_s + 60, unit=_full(name), grace_s=int(grace_s)))

    def forget_unit(self, name: str) -> None:
        """Remove its file; the journal is the host's own."""
        state = self.unit(name)
        if state.phase != UnitPhase.ACTIVE and not state.left_over_pids:
            self._helper.act("remove-unit", unit=_full(name))

    def end_process(self, pid: int, start_ticks: int, why: str) -> bool:
        """End one process of ours that no unit holds any more."""
        return bool(self._helper.act("end-process", pid=pid, start_ticks=start_ticks, why=why)["ended"])

    def read_log(self, name: str, cursor: str | None, limit_bytes: int = 262_144) -> LogChunk:
        """Journal lines of the unit's present invocation, or of the one that the cursor belongs to."""
        invocation, _, place = (cursor or "").partition("|")
        found = self._helper.ask(
            "journal", unit=_full(name), invocation_id=invocation or None, cursor=place or None, limit_bytes=limit_bytes
        )
        lines = tuple(str(line).replace("\0", "�") for line in found["lines"])
        if found["gap"]:
            lines = ("[expctl: the journal has lost lines here]", *lines)
        return LogChunk(lines, f"{found['invocation_id']}|{found['cursor'] or ''}", bool(found["at_end"]))

    def port_owner(self, port: int) -> PortOwner | None:
        """Who listens on `port`; one that is not ours first."""
        owners = self._helper.ask("port", port=port)["owners"]
        if not owners:
            return None
        units = {owner["unit"] for owner in owners}
        foreign = [owner for owner in owners if not str(owner["unit"] or "").startswith("expctl-")]
        shown = (foreign or owners)[0]
        unit = shown["unit"].removesuffix(SUFFIX) if shown["unit"] and not foreign else None
        return PortOwner(port, shown["pid"], shown["command"] or shown["argv0"], unit, shown["unit"], shared=len(units) > 1)

    def gpus(self) -> GpuReading:
        """The GPUs, their memory and who holds it."""
        return self._gpus.read(self.processes)

    def processes(self, pids: Sequence[int]) -> Mapping[int, ProcessInfo]:
        """What is known of these processes; those that are gone are left out."""
        if not pids:
            return {}
        found = self._helper.ask("processes", pids=list(pids))["processes"]
        return {
            int(one["pid"]): ProcessInfo(
                pid=int(one["pid"]),
                name=one["name"],
                owner=one["user"],
                unit=one["unit"],
                start_ticks=one["start_ticks"],
                state=one["state"],
                unit_lives=one.get("unit_lives"),
            )
            for one in found
        }

    def shm(self) -> ShmUsage | None:
        """How full /dev/shm is."""
        facts = self._helper.ask("facts")["facts"]
        total = facts.get("shm_total_mib")
        return None if total is None else ShmUsage(used_mib=int(facts["shm_used_mib"]), total_mib=int(total))

    def arm(self, ttl_s: float, parked: Sequence[ParkedUnit] | None = None) -> None:
        """Arm the dead-man, or put its deadline off."""
        record: dict[str, Any] = {}
        if parked is not None:
            units = [{"unit": one.name, "sha256": one.sha256, "live_argv": list(one.live_argv), "proof": {}} for one in parked]
            record = {"record": {"parked": units}}
        try:
            self._helper.act("arm", ttl_s=round(ttl_s), **record)
        except HelperRefused as refused:
            fired = _fired(refused.reason, refused.evidence, refused.answer)
            if fired is None:
                raise
            raise fired from refused

    def restore(self) -> tuple[RestoredUnit, ...]:
        """End ours, start what was parked."""
        found = self._helper.act("restore", timeout_s=180.0)["restored"]
        return tuple(RestoredUnit(str(one["unit"]), bool(one["active"]), str(one["message"])) for one in found)

    def disarm(self, *, force: bool = False) -> None:
        """Nothing is left to be restored; the host is free for others."""
        self._helper.act("disarm", force=force)

    def facts(self) -> dict[str, object]:
        """Provenance: kernel, CPU, memory, systemd, driver, GPU names and state."""
        return {**self._helper.ask("facts")["facts"], **self._gpus.facts()}

    def gpu_state(self) -> list[dict[str, str]]:
        """Clocks, power, temperature and throttling a GPU."""
        return self._gpus.state()

    def look(self, question: Mapping[str, Any], deadline_s: float = 30.0) -> Mapping[str, Any]:
        """As the login user may see it; a login as root looks as whoever runs the engine."""
        return look(self._helper.transport, question, deadline_s)

    def work_folder(self, name: str) -> str:
        """Made by systemd at the unit's start, for whoever runs it, and never taken away."""
        return f"{WORK}/{name}"

    def work_folders(self) -> tuple[str, ...]:
        """Units that have a folder there, whoever started them."""
        return tuple(str(unit).removesuffix(SUFFIX) for unit in self._helper.ask("work-folders")["units"])

    def remove_work_folder(self, name: str) -> bool:
        """The helper refuses what is no such folder, and one whose unit lives."""
        return bool(self._helper.act("remove-work", timeout_s=REMOVAL_S, unit=_full(name))["removed"])

    def collect_files(self, patterns: Sequence[str], cwd: str, label: str, limit_bytes: int, tick: Callable[[], None]) -> Collected:
        """Copies go to `artifacts`/<label> in the worker's data folder."""
        if self._data_dir is None or LABEL.fullmatch(label) is None:
            raise HostError(Reason.INTERNAL_ERROR, f"there is no place for the artifacts of {label[:100]!r}")
        into = self._data_dir / "artifacts" / label
        return Fetch(self._helper.transport, self.run_as, into, limit_bytes, tick).all(patterns, cwd)


def _fired(reason: str, evidence: str, story: Mapping[str, Any]) -> DeadManFired | None:
    """What the dead-man did, from its record or from a refusal that tells of it."""
    at = story.get("fired_at")
    return None if at is None else DeadManFired(reason, evidence, str(at), str(story.get("fired_why")))


def state_of(status: Mapping[str, Any]) -> UnitState:
    """From what systemd says of a unit."""
    show, pids = status["show"], tuple(int(pid) for pid in status["pids"])
    phase = _phase(show, ours=str(status["unit"]).startswith(OURS))
    code, number = _number(show.get("ExecMainCode")), _number(show.get("ExecMainStatus"))
    ended = phase == UnitPhase.ENDED
    return UnitState(
        name=str(status["unit"]).removesuffix(SUFFIX),
        phase=phase,
        invocation_id=show.get("InvocationID") or None,
        main_pid=_number(show.get("MainPID")) or None,
        exit_status=number if ended and code == EXITED else None,
        signal=number if ended and code in {KILLED, DUMPED} else None,
        result=show.get("Result") or None,
        restarts=_number(show.get("NRestarts")) or 0,
        left_over_pids=pids if phase != UnitPhase.ACTIVE else (),
        argv=tuple(status.get("seen_argv") or ()) or tuple(status["argv"]),
        boot_id=status.get("boot_id"),
        used=_used(status) if phase == UnitPhase.ACTIVE else None,
        # A helper of an earlier version does not say.
        age_s=status.get("age_s") if phase == UnitPhase.ACTIVE else None,
    )


UNSET = 2**64 - 1
"""What systemd shows for a figure that it does not keep."""


def _used(status: Mapping[str, Any]) -> Usage:
    """By the processes, else by the control group: that one does not see what comes over the network's file systems."""
    show = status["show"]
    cpu, read = (None if (found := _number(show.get(name))) == UNSET else found for name in ("CPUUsageNSec", "IOReadBytes"))
    by_processes = status.get("read_bytes")
    return Usage(None if cpu is None else cpu / 1e9, read if by_processes is None else int(by_processes))


def _phase(show: Mapping[str, str], *, ours: bool) -> UnitPhase:
    active = show.get("ActiveState", "")
    if ours and active == "active" and show.get("SubState") == "exited":
        return UnitPhase.ENDED  # it is kept so that how it ended is not forgotten; production may be meant to be like that
    if active in LIVING:
        return UnitPhase.ACTIVE
    if active not in {"inactive", "failed"}:
        return UnitPhase.UNKNOWN
    if active == "failed" or show.get("InvocationID") or _number(show.get("ExecMainCode")):
        return UnitPhase.ENDED
    return UnitPhase.NOT_FOUND


def _findable(argv: tuple[str, ...]) -> list[str]:
    """With an absolute path, as systemd wants it; anything else is looked for by `env`, as a shell would."""
    return list(argv) if argv[0].startswith("/") else [ENV, *argv]


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _full(name: str) -> str:
    return name if name.endswith(SUFFIX) else name + SUFFIX
