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

MOST_WARNINGS = 20
MOST_CAUSES = 256
MANY_RESTARTS = 2


@dataclass
class UnitLife:
    """What became of a unit, by systemd's words so far."""

    stop_requested: bool = False
    stopped: bool = False
    """systemd has said that it ended in good order."""
    exit_status: int | None = None
    signal: int | None = None
    result: str | None = None
    restarts: int | None = None
    started: int = 0
    """How often systemd has said that it starts."""
    facts: dict[str, Any] = field(default_factory=dict)
    causes: list[Cause] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def take(self, message: str) -> None:
        """Take in one line of systemd's."""
        text = message.strip()
        if _STOPPING.match(text):
            self.stop_requested = True
        elif _STARTING.match(text):
            # "Starting" and "Started" are one start.
            self.started += not text.startswith("Started ") or self.started == 0 or self.stopped
            self.stop_requested = self.stopped = False
        elif _STOPPED.match(text) or _DEACTIVATED.match(text):
            self.stopped = True
        if len(self.causes) > MOST_CAUSES:
            # The last ones count, and the first tells how it began.
            self.causes = [self.causes[0], *self.causes[-MOST_CAUSES // 2 :]]
        self._take_ending(text)
        self._take_causes(text)

    def _take_ending(self, text: str) -> None:
        if match := _EXITED.match(text):
            self._exited(match)
        elif match := _RESULT.match(text):
            self.result = match["result"]
            cause = cause_of_result(match["result"], text)
            # A stop that took too long has the same result as a start that did.
            self.causes += [cause] if cause and not self.facts.get("stop_timed_out") else []
        elif match := _RESTART.match(text):
            self.restarts = int(match["count"])
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
        elif _START_TIMEOUT.match(text):
            self.causes.append(Cause(Reason.SYSTEMD_START_TIMEOUT, Weight.SERVICE_MANAGER, text))
        elif _STOP_TIMEOUT.match(text):
            self.facts["stop_timed_out"] = True
            self._warn("stop_timed_out: systemd had to kill it; workers that left the unit's control group may still hold GPU memory")
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
