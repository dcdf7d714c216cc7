"""What `systemctl show` says of a unit, as a state with a cause."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from service.domain.reasons import Reason
from workers.diagnosis.cause import Cause, Weight
from workers.diagnosis.systemd_words import STOP_TIMED_OUT, cause_of_exit, cause_of_result

_PAIR = re.compile(r"(?<![\w-])([A-Z][A-Za-z0-9]{1,60})=(\S*)")
_KILLED, _DUMPED = "2", "3"
_NAMED_CODES = {"exited": "1", "killed": "2", "dumped": "3"}


@dataclass
class UnitShown:
    """One reading of a unit."""

    properties: Mapping[str, str]
    state: str | None = None
    """failed, stopped, loading; None where the unit runs, which says nothing of the engine in it."""
    causes: list[Cause] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def active(self) -> str:
        """ActiveState, or what LoadState says where there is no unit."""
        load = self.properties.get("LoadState", "")
        return "not_found" if load == "not-found" else self.properties.get("ActiveState", "")

    @property
    def main_pid(self) -> int | None:
        """The main process; None where none runs or that was not asked."""
        return number(self.properties.get("MainPID")) or None


def number(text: str | None) -> int | None:
    """A whole number; None for anything else."""
    return int(text) if text is not None and text.isdecimal() and len(text) < 19 else None  # noqa: PLR2004 - what fits 64 bits


def properties_of(lines: Iterable[str]) -> dict[str, str]:
    """`Name=value` lines."""
    pairs = (line.strip("\r\n").partition("=") for line in lines)
    return {name.strip(): value.strip() for name, equals, value in pairs if equals and name.strip().isidentifier()}


def inline_properties(text: str) -> dict[str, str]:
    """`ActiveState=active SubState=running` within a line."""
    return dict(_PAIR.findall(text))


_STATUS_LOADED = re.compile(r"^\s*Loaded: (?P<load>[\w-]{1,40})")
_STATUS_ACTIVE = re.compile(r"^\s*Active: (?P<active>[\w-]{1,40}) \((?P<inside>[^)]{1,80})\)")
_STATUS_PROCESS = re.compile(
    r"^\s*(?:Process|Main PID): (?P<pid>\d{1,10}) (?:ExecStart=.{0,2000}? )?"
    r"\((?:code=(?P<code>\w+), (?:status|signal)=(?P<status>\w+)(?:/\w+)?|(?P<name>[^)=]{1,64}))\)"
)
_SIGNALS = {"HUP": "1", "INT": "2", "QUIT": "3", "ABRT": "6", "BUS": "7", "KILL": "9", "SEGV": "11", "TERM": "15"}


def is_status_line(line: str) -> bool:
    """Whether a line is of `systemctl status`."""
    return bool(_STATUS_LOADED.match(line) or _STATUS_ACTIVE.match(line) or _STATUS_PROCESS.match(line))


def status_properties(lines: Iterable[str]) -> dict[str, str]:
    """What `systemctl status` tells people, under the names of `systemctl show`."""
    found: dict[str, str] = {}
    for line in lines:
        if match := _STATUS_LOADED.match(line):
            found["LoadState"] = match["load"]
        elif match := _STATUS_ACTIVE.match(line):
            found["ActiveState"] = match["active"]
            inside = match["inside"].removeprefix("Result: ")
            found["Result" if match["inside"].startswith("Result: ") else "SubState"] = inside
        elif match := _STATUS_PROCESS.match(line):
            if match["code"]:
                found["ExecMainCode"] = match["code"]
                found["ExecMainStatus"] = _SIGNALS.get(match["status"], match["status"])
            else:
                found["MainPID"] = match["pid"]
    return found


def read_show(properties: Mapping[str, str]) -> UnitShown:
    """What one reading means by itself."""
    shown = UnitShown(properties)
    code = properties.get("ExecMainCode", "")
    code = _NAMED_CODES.get(code, code)
    status = number(properties.get("ExecMainStatus"))
    if not code and status and properties.get("Result") == "exit-code":
        # The code was not asked for, but this result is of an exit. With status 0 it was another process that failed.
        code = _NAMED_CODES["exited"]
    by_signal = code in {_KILLED, _DUMPED}
    shown.facts = {
        "unit_state": shown.active or None,
        "active_state": properties.get("ActiveState"),
        "sub_state": properties.get("SubState"),
        "result": properties.get("Result"),
        "restarts": number(properties.get("NRestarts")),
        "signal": status if by_signal and status else None,
        "unit_pid": shown.main_pid,
    }
    if code == "1" and "ExecMainStatus" in properties and not shown.main_pid:
        shown.facts["exit_status"] = shown.facts["last_exit_status"] = status
    shown.facts = {name: value for name, value in shown.facts.items() if value is not None}
    if properties.get("LoadState") == "bad-setting":
        shown.causes.append(Cause(Reason.UNIT_SYNTAX, Weight.DEFINITION, "LoadState=bad-setting: systemd refuses the unit's files"))
    _judge(shown, None if by_signal or code == "0" else status, status if by_signal else None)
    _warn(shown)
    return shown


_STATES = {"failed": "failed", "activating": "loading", "inactive": "stopped", "not_found": "stopped", "deactivating": "not_ready"}


def _judge(shown: UnitShown, status: int | None, signal: int | None) -> None:
    properties = shown.properties
    active, sub, result = shown.active, properties.get("SubState", ""), properties.get("Result", "")
    evidence = " ".join(
        f"{name}={properties[name]}" for name in ("ActiveState", "SubState", "Result", "ExecMainStatus", "NRestarts") if name in properties
    )
    restarting = sub.startswith("auto-restart") or sub == "dead-before-auto-restart"
    if restarting:
        shown.state = "failed"
        # A pause before a restart is a start that has failed, whatever ActiveState says.
        shown.causes.append(Cause(Reason.CRASH_LOOP, Weight.LOOP, evidence))
    else:
        shown.state = _STATES.get(active)
    if result == "timeout" and (active == "deactivating" or _had_started(properties)):
        shown.state = "not_ready" if active == "deactivating" else "stopped"
        shown.warnings.append(STOP_TIMED_OUT)
    elif shown.state in {"failed", "stopped"} or result not in {"", "success"}:
        found = [cause_of_result(result, evidence), cause_of_exit(status, signal, evidence)]
        shown.causes += [cause for cause in found if cause is not None]
    if active == "failed" and not shown.causes and shown.state == "failed":
        shown.causes.append(Cause(Reason.ENGINE_DEAD, Weight.ENDING, evidence))
    if shown.causes and shown.state != "loading":
        shown.state = "failed"


def _had_started(properties: Mapping[str, str]) -> bool:
    """Whether it was active, or is of a type that is active at once: then only its stop can have taken too long."""
    entered = any(properties.get(name) not in {None, "", "0", "n/a"} for name in ("ActiveEnterTimestamp", "ActiveEnterTimestampMonotonic"))
    return entered or properties.get("Type") in {"simple", "exec", "idle"}


def _warn(shown: UnitShown) -> None:
    if shown.properties.get("NeedDaemonReload") == "yes":
        text = "NeedDaemonReload=yes: the unit's files were changed after systemd had read them; run systemctl daemon-reload"
        shown.warnings.append(f"stale_unit_definition: {text}")
        shown.causes.append(Cause(Reason.STALE_UNIT_DEFINITION, Weight.HINT, "NeedDaemonReload=yes"))
    restart = shown.properties.get("Restart", "")
    if restart not in {"", "no"} and (shown.facts.get("restarts") or 0) > 0:
        shown.warnings.append(f"restart: Restart={restart} loads the model again and again; a trial needs Restart=no")
    if shown.active == "not_found":
        shown.warnings.append("unit_not_found: systemd knows no such unit")
