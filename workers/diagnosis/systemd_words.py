"""What systemd says of a unit in the journal, and what that makes of the unit's life."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from service.domain.reasons import Reason
from workers.diagnosis.cause import Cause, Weight

_U = r"(?:(?P<unit>[^\s:]{1,255}\.(?:service|scope)): )?"
_EXITED = re.compile(_U + r"(?P<which>Main|Control) process exited, code=(?P<code>\w+), status=(?P<status>\d{1,3})(?:/(?P<name>[\w-]+))?")
_RESULT = re.compile(_U + r"Failed with result '(?P<result>[\w-]+)'")
_RESTART = re.compile(_U + r"Scheduled restart job, restart counter is at (?P<count>\d{1,9})")
_STEP = re.compile(_U + r"Failed at step (?P<step>[A-Z_]+) spawning (?P<path>[^:]{1,400}): (?P<errno>.{1,200})")
_LOCATE = re.compile(
    _U + r"(?:Failed to locate executable|Unable to locate executable|Failed to execute) '?(?P<path>[^:']{1,400})'?: (?P<errno>.{1,200})"
)
_RESOURCES = re.compile(
    _U + r"Failed to (?:load environment files|determine user credentials|set up [\w ]{1,60}|run '[\w-]{1,20}' task): (?P<errno>.{1,200})"
)
_START_TIMEOUT = re.compile(_U + r"(?:[Ss]tart(?:-pre|-post)? operation timed out|State 'start(?:-pre|-post)?' timed out)")
_STOP_TIMEOUT = re.compile(_U + r"(?:State '(?:stop|final)-\w+' timed out|[Ss]topping timed out)")
_UNKILLABLE = re.compile(_U + r"Processes still around after (?:final )?SIGKILL")
_RAN_TOO_LONG = re.compile(_U + r"(?:Service|Scope) reached runtime time limit")
_TIMEOUT = re.compile(r"timed out|reached runtime time limit")
_OOM = re.compile(r"has been killed by the OOM killer|systemd-oomd killed \d+ process|Killed \S{1,255} due to memory pressure")
_WATCHDOG = re.compile(_U + r"Watchdog timeout")
_TOO_QUICKLY = re.compile(r"Start request repeated too quickly")
_LEFT_OVER = re.compile(
    r"(?:Found left-over process (?P<pid>\d{1,10}) \((?P<name>[^)]{1,64})\) in control group"
    r"|Unit process (?P<pid2>\d{1,10}) \((?P<name2>[^)]{1,64})\) remains running after unit stopped)"
)
_STOPPING = re.compile(r"^Stopping \S")
_STOPPED = re.compile(r"^Stopped \S|^Stopped$")
_DEACTIVATED = re.compile(_U + r"(?:Deactivated successfully|Succeeded)\.")
_STARTING = re.compile(r"^(?:Starting|Started) \S")
_NAMED = re.compile(
    r"^(?:(?:Stopping|Stopped|Starting|Started|Reloading|Reloaded|Failed to start) )?"
    r"(?P<name>[^\s:]{1,255}?\.(?P<kind>service|scope|socket|timer|target|mount|automount|slice|device|swap|path))(?:\.{3}|[ :.]|$)"
)
_OF_THE_SYSTEM = re.compile(
    r"(?:systemd-|user@|user-runtime-dir@|session-|getty@|serial-getty@|snapd?\b|apt-|unattended-upgrades|packagekit|fwupd|motd-|man-db|logrotate"
    r"|cron|anacron|dbus|polkit|ssh|NetworkManager|networkd|rsyslog|chrony|docker|containerd|podman|nvidia-|dcgm|lvm2-|udisks2|multipathd)"
)
_OF_AN_ENGINE = re.compile(r"vllm|sglang|llama|llm|expctl-\d|infer", re.IGNORECASE)
_SYNTAX = re.compile(
    r"has a bad unit file setting|bad unit file setting|Service (?:has no ExecStart=|lacks both ExecStart=)|has no ExecStart=, ExecStop=|"
    r"Unbalanced quoting|[Nn]either a valid executable name nor an absolute path|Executable (?:name|path) .{0,200}is not absolute|"
    r"Failed to (?:resolve unit specifiers|parse (?:service|unit|\S{1,60} setting))|has more than one ExecStart= setting|"
    r"Missing '=', ignoring|Assignment outside of section|Invalid section header"
)
_IGNORED = re.compile(
    r"^(?P<where>\S{1,400}:\d{1,6}): (?P<what>(?:Unknown (?:key name|lvalue|section)|Ignoring unknown escape|Unknown escape).{0,300})"
)
_CHANGED = re.compile(
    r"changed on disk\. Run 'systemctl (?:--user )?daemon-reload'|The unit file, source configuration file or drop-ins of \S+ changed"
)
_UNSET = re.compile(r"Referenced but unset environment variable evaluates to an empty string: (?P<names>.{1,300})")

EXEC_STEPS = {
    200: "CHDIR", 203: "EXEC", 204: "MEMORY", 205: "LIMITS", 206: "OOM_ADJUST", 208: "STDIN", 209: "STDOUT", 210: "CHROOT", 213: "NICE",
    214: "SETSCHEDULER", 216: "GROUP", 217: "USER", 218: "CAPABILITIES", 219: "CGROUP", 222: "STDERR", 224: "PAM", 225: "NETWORK",
    226: "NAMESPACE", 228: "SECCOMP", 233: "RUNTIME_DIRECTORY", 237: "KEYRING", 238: "STATE_DIRECTORY", 239: "CACHE_DIRECTORY",
    240: "LOGS_DIRECTORY", 241: "CONFIGURATION_DIRECTORY", 242: "NUMA_POLICY", 243: "CREDENTIALS",
}  # fmt: skip
"""Exit statuses of systemd's own: the program was never run."""

STOP_TIMED_OUT = "stop_timed_out: systemd had to kill it; workers that left the unit's control group may still hold GPU memory"
MOST_WARNINGS = 20
MOST_CAUSES = 256
MANY_RESTARTS = 2


@dataclass
class UnitLife:
    """What became of a unit, by systemd's words so far."""

    unit: str | None = None
    """Its name, once a line has named a unit that can only be an engine's."""
    stop_requested: bool = False
    stopped: bool = False
    """systemd has said that it ended in good order."""
    ended: bool = False
    """However it did, since its last start."""
    exit_status: int | None = None
    signal: int | None = None
    result: str | None = None
    restarts: int | None = None
    started: int = 0
    """How often systemd has said that it starts."""
    facts: dict[str, Any] = field(default_factory=dict)
    causes: list[Cause] = field(default_factory=list)
    earlier: list[Cause] = field(default_factory=list)
    """Of the starts before the last one."""
    warnings: list[str] = field(default_factory=list)

    def take(self, message: str) -> None:
        """Take in one line of systemd's; what it says of other units is passed over."""
        text = message.strip()
        if self._is_of_another_unit(text):
            return
        if _STOPPING.match(text):
            self.stop_requested = True
        elif _STARTING.match(text):
            self._start(text)
        elif _STOPPED.match(text) or _DEACTIVATED.match(text):
            self.stopped = self.ended = True
        if len(self.causes) > MOST_CAUSES:
            # The last ones count, and the first tells how it began.
            self.causes = [self.causes[0], *self.causes[-MOST_CAUSES // 2 :]]
        self._take_ending(text)
        self._take_causes(text)

    def _is_of_another_unit(self, text: str) -> bool:
        """Whether a journal of the whole host tells of a timer, a session, or a service that is not the engine's."""
        match = _NAMED.match(text)
        if match is None:
            return False
        name = match["name"].rpartition("/")[2]
        if _OF_AN_ENGINE.search(name) and match["kind"] in {"service", "scope"}:
            if self.unit is None or _STARTING.match(text):
                self.unit = name
            return name != self.unit
        return self.unit is not None or match["kind"] not in {"service", "scope"} or bool(_OF_THE_SYSTEM.match(name))

    def _start(self, text: str) -> None:
        """Take in a start. "Starting" and "Started" are one, unless it ended in between."""
        if not text.startswith("Started ") or self.started == 0 or self.ended:
            self.started += 1
            self.earlier = [*self.earlier, *self.causes][-MOST_CAUSES:]
            self.causes = []
        self.stop_requested = self.stopped = self.ended = False

    def _take_ending(self, text: str) -> None:
        if match := _EXITED.match(text):
            self._exited(match)
        elif match := _RESULT.match(text):
            self.result, self.ended = match["result"], True
            cause = cause_of_result(match["result"], text)
            # A stop that took too long has the same result as a start that did.
            known = self.facts.get("stop_timed_out") or self.facts.get("runtime_limit")
            self.causes += [cause] if cause and not (known and match["result"] == "timeout") else []
        elif match := _RESTART.match(text):
            self.restarts, self.ended = int(match["count"]), True
            if self.restarts >= MANY_RESTARTS:
                self.causes.append(Cause(Reason.CRASH_LOOP, Weight.LOOP, text))
        elif _TOO_QUICKLY.search(text):
            self.result = "start-limit-hit"
            self.causes.append(Cause(Reason.CRASH_LOOP, Weight.LOOP, text))

    def _exited(self, match: re.Match[str]) -> None:
        status = int(match["status"])
        if match["which"] == "Control":
            self.facts["control_exit_status"] = status
            return
        self.ended = True
        if match["code"] == "exited":
            self.exit_status, self.signal = status, None
        else:
            self.exit_status, self.signal = None, status
        cause = cause_of_exit(self.exit_status, self.signal, match.group().strip())
        self.causes += [cause] if cause else []

    def _take_causes(self, text: str) -> None:
        if match := _STEP.match(text) or _LOCATE.match(text):
            facts = {"path": match["path"].strip(), "errno_text": match["errno"].strip().rstrip(".")}
            self.causes.append(Cause(Reason.EXEC_FAILED, Weight.ROOT, text, facts=facts))
        elif match := _RESOURCES.match(text):
            self.causes.append(Cause(Reason.EXEC_FAILED, Weight.ROOT, text, facts={"errno_text": match["errno"].strip()}))
        elif _TIMEOUT.search(text):
            self._timed_out(text)
        elif _UNKILLABLE.match(text):
            self.causes.append(Cause(Reason.UNKILLABLE_PROCESS, Weight.OUTSIDE, text))
        elif _OOM.search(text):
            self.causes.append(Cause(Reason.HOST_OUT_OF_MEMORY, Weight.SERVICE_MANAGER, text))
        elif _WATCHDOG.match(text):
            self.causes.append(Cause(Reason.ENGINE_UNRESPONSIVE, Weight.SERVICE_MANAGER, text))
        elif match := _LEFT_OVER.search(text):
            self._left_over(match)
        elif _SYNTAX.search(text):
            self.causes.append(Cause(Reason.UNIT_SYNTAX, Weight.DEFINITION, text))
        else:
            self._take_warnings(text)

    def _timed_out(self, text: str) -> None:
        """Starts, stops and runs have limits of their own, and one result for all of them."""
        if _START_TIMEOUT.match(text):
            self.causes.append(Cause(Reason.SYSTEMD_START_TIMEOUT, Weight.SERVICE_MANAGER, text))
        elif _STOP_TIMEOUT.match(text):
            self.facts["stop_timed_out"] = True
            self._warn(STOP_TIMED_OUT)
        elif _RAN_TOO_LONG.match(text):
            self.facts["runtime_limit"] = True
            self.causes.append(Cause(Reason.ENGINE_DEAD, Weight.SERVICE_MANAGER, text))

    def _left_over(self, match: re.Match[str]) -> None:
        pid, name = int(match["pid"] or match["pid2"]), match["name"] or match["name2"]
        self.facts["left_over_pids"] = [*self.facts.get("left_over_pids", []), pid][:64]
        self.facts.setdefault("pid", pid)
        self.causes.append(Cause(Reason.ORPHAN_PROCESS, Weight.ENDING, match.group(), component=name, facts={"pid": pid}))

    def _take_warnings(self, text: str) -> None:
        if match := _IGNORED.match(text):
            self._warn(f"ignored_line: {match['where']}: {match['what']}")
        elif _CHANGED.search(text):
            self._warn(f"stale_unit_definition: {text[:200]}")
        elif match := _UNSET.search(text):
            self._warn(f"unset_variable: systemd put nothing in the place of {match['names'].strip()}; write $$ for a dollar sign")

    def _warn(self, text: str) -> None:
        if text not in self.warnings and len(self.warnings) < MOST_WARNINGS:
            self.warnings.append(text)


def cause_of_exit(status: int | None, signal: int | None, evidence: str) -> Cause | None:
    """What an exit status or a signal alone says; None for a good end."""
    if signal is not None:
        told = {"signal": signal}
        return Cause(Reason.ENGINE_DEAD, Weight.ENDING, evidence, facts=told) if signal not in {1, 2, 15} else None
    if status in EXEC_STEPS:
        return Cause(Reason.EXEC_FAILED, Weight.SERVICE_MANAGER, evidence, facts={"exec_step": EXEC_STEPS[status]})
    return Cause(Reason.ENGINE_DEAD, Weight.ENDING, evidence) if status else None


def cause_of_result(result: str, evidence: str) -> Cause | None:
    """What systemd's Result= says; None for success and for what the exit status tells better."""
    reason, weight = {
        "oom-kill": (Reason.HOST_OUT_OF_MEMORY, Weight.SERVICE_MANAGER),
        "timeout": (Reason.SYSTEMD_START_TIMEOUT, Weight.GENERIC),
        "watchdog": (Reason.ENGINE_UNRESPONSIVE, Weight.SERVICE_MANAGER),
        "start-limit-hit": (Reason.CRASH_LOOP, Weight.LOOP),
        "start-limit": (Reason.CRASH_LOOP, Weight.LOOP),
        "resources": (Reason.EXEC_FAILED, Weight.GENERIC),
        "core-dump": (Reason.ENGINE_DEAD, Weight.ENDING),
        "signal": (Reason.ENGINE_DEAD, Weight.ENDING),
        "protocol": (Reason.EXEC_FAILED, Weight.ENDING),
    }.get(result, (None, Weight.ENDING))
    return None if reason is None else Cause(reason, weight, evidence)
