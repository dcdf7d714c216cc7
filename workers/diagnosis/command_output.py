"""What a command on a host printed: whether it ran at all, how it ended, and what is noise."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from service.domain.reasons import Reason
from workers.diagnosis.paste import Part
from workers.hosts.remote_causes import cause_of

SSH_FAILED = 255
TIMED_OUT = 124
NO_STATUS = -1
"""What an SSH library says where no status came: the connection broke, or the command ended by a signal."""
_BEGIN = re.compile(r"^(?P<mark>\S{2,80})-BEGIN\s*$")
_END = re.compile(r"^(?P<mark>\S{2,80})-END (?P<status>\d{1,3})\s*$")
_CHANGES = re.compile(
    r"\b(?:systemctl|service)\b.{0,80}?\b(?:stop|start|restart|kill|enable|disable|mask|daemon-reload|reload|reset-failed|set-property)\b"
    r"|\b(?:kill|pkill|reboot|shutdown)\b"
)
_ASKS_UNIT = re.compile(r"\bsystemctl\b.{0,80}?\b(?:show|status|is-active|is-failed|is-enabled|cat|list-units)\b")
_UNREACHABLE = (
    "Connection timed out|Operation timed out|No route to host|Network is unreachable|Could not resolve hostname|Host is down"
    "|NoValidConnectionsError|Unable to connect to port"
)
_CHANGED_KEY = r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key for \S{1,200} has changed|Host key for server \S{1,200} does not match"
_UNKNOWN_KEY = r"Server \S{1,200} not found in known_hosts"
_NO_LOGIN = (
    r"Permission denied \([\w,@.-]{1,200}\)|Too many authentication failures|Authentication failed"
    r"|no matching (?:host key type|key exchange method|cipher|MAC) found"
)
_OWN_FILES = r"Bad owner or permissions on|[Bb]ad configuration option"
_TURNED_AWAY = (
    "Session open refused by peer|administratively prohibited|kex_exchange_identification|Connection closed by"
    "|Error reading SSH protocol banner"
)
_BROKE_OFF = (
    r"client_loop: send disconnect|Broken pipe|SSH session not active|Connection reset|Timeout, server|packet_write_wait"
    r"|Connection to \S{1,200} closed by remote"
)
_WIRE: tuple[tuple[re.Pattern[str], Reason, str], ...] = (
    (re.compile(_UNREACHABLE, re.IGNORECASE), Reason.HOST_UNREACHABLE, "not_executed"),
    (re.compile(_CHANGED_KEY, re.IGNORECASE), Reason.HOST_KEY_CHANGED, "not_executed"),
    (re.compile(_UNKNOWN_KEY, re.IGNORECASE), Reason.HOST_KEY_UNKNOWN, "not_executed"),
    (re.compile(_OWN_FILES), Reason.REMOTE_COMMAND_FAILED, "not_executed"),
    (re.compile(_NO_LOGIN, re.IGNORECASE), Reason.AUTH_FAILED, "not_executed"),
    (re.compile(_TURNED_AWAY, re.IGNORECASE), Reason.CONNECTION_LOST, "not_executed"),
    (re.compile(_BROKE_OFF, re.IGNORECASE), Reason.CONNECTION_LOST, "unknown"),
)
_ASKS_STATE = re.compile(r"\bsystemctl\b.{0,80}?\b(?P<what>is-active|is-failed|status)\b")
UNIT_STATES = frozenset({"active", "inactive", "failed", "activating", "deactivating", "reloading", "maintenance"})
_REFUSED = re.compile(
    r"[Ii]nteractive authentication required|Access denied|is not in the sudoers file|is not allowed to (?:execute|run)|may not run sudo"
    r"|Unit \S{1,255} is masked"
)
_NO_UNIT = re.compile(
    r"Unit (\S{1,255}) (?:not found|could not be found|not loaded)|Failed to \w+ (\S{1,255}): Unit .{0,255}? not (?:found|loaded)"
)
_SEE_ALSO = re.compile(r"^See .{0,200}(?:systemctl status|journalctl|systemctl --user status)")
_RELOAD = re.compile(r"changed on disk\. Run 'systemctl (?:--user )?daemon-reload'")


@dataclass
class CommandSaid:
    """How a command ended. `stdout` is its own, without the noise around it."""

    reason: Reason | None = None
    evidence: str = ""
    command: str = "executed"
    """executed, not_executed, unknown"""
    status: int | None = None
    stdout: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    hint: str = ""


def read_command(part: Part) -> CommandSaid:
    """What became of one command."""
    said = CommandSaid(stdout=list(part.lines), status=part.exit_status)
    begun, ended = _inside_marks(said)
    over_ssh = part.exit_status == SSH_FAILED or _by_ssh(part.command)
    if ended:
        said.facts["ssh"] = "ok"
        _ran(said, part)
    elif not _of_the_wire(said, part, begun=begun, over_ssh=over_ssh):
        if part.timed_out or part.exit_status == TIMED_OUT:
            _timed_out(said, begun=begun)
        elif part.exit_status == NO_STATUS:
            said.reason, said.command, said.status = Reason.CONNECTION_LOST, "unknown", None
            said.evidence = "exit status -1: the channel was closed without one, or a signal ended the command"
        elif begun:
            said.reason, said.command, said.status = Reason.CONNECTION_LOST, "unknown", None
            said.evidence = "the output breaks off before the end mark"
        else:
            _ran(said, part)
    said.facts["remote_exit_status"] = said.status
    _answered(said, part)
    _unit_state(said, part)
    if any(_RELOAD.search(line) for line in [*part.stderr, *part.lines]):
        if said.reason is None:
            said.reason, said.evidence = (
                Reason.STALE_UNIT_DEFINITION,
                next(line for line in [*part.stderr, *part.lines] if _RELOAD.search(line)),
            )
        said.warnings.append("stale_unit_definition: the unit's files changed on disk; run systemctl daemon-reload")
    return said


def _by_ssh(command: str) -> bool:
    return bool(re.match(r"(?:\S{1,80}/)?(?:ssh|scp|rsync|autossh)\b", command))


def _inside_marks(said: CommandSaid) -> tuple[bool, bool]:
    """Keep what stands between the marks. The account's start-up files print before them."""
    begin = next((index for index, line in enumerate(said.stdout) if _BEGIN.match(line)), None)
    if begin is None:
        return False, False
    opened = _BEGIN.match(said.stdout[begin])
    mark = opened["mark"] if opened else ""
    for index in range(begin + 1, len(said.stdout)):
        closed = _END.match(said.stdout[index])
        if closed and closed["mark"] == mark:
            outside = said.stdout[:begin] + said.stdout[index + 1 :]
            said.facts["noise_lines"] = sum(1 for line in outside if line.strip())
            said.stdout, said.status = said.stdout[begin + 1 : index], int(closed["status"])
            return True, True
    said.facts["noise_lines"] = sum(1 for line in said.stdout[:begin] if line.strip())
    said.stdout = said.stdout[begin + 1 :]
    return True, False


def _of_the_wire(said: CommandSaid, part: Part, *, begun: bool, over_ssh: bool) -> bool:
    """Whether ssh itself failed: its own status, and its own words."""
    if part.exit_status not in {None, SSH_FAILED} or not (over_ssh or part.exit_status is None):
        return False
    for pattern, reason, command in _WIRE:
        line = next(
            (line.strip() for line in [*part.stderr, *(part.lines if part.exit_status == SSH_FAILED else [])] if pattern.search(line)), None
        )
        if line is not None:
            executed = "unknown" if begun else command
            said.reason, said.evidence, said.command, said.status = reason, line[:500], executed, None
            said.facts["ssh"] = "failed"
            return True
    if part.exit_status != SSH_FAILED or begun:
        return False
    cause = cause_of("\n".join(part.stderr).encode("utf-8", "surrogatepass"), part.exit_status)
    said.reason = cause.reason if cause else Reason.CONNECTION_LOST
    said.evidence = cause.evidence if cause else "exit status 255, which is ssh's own, and no end mark"
    said.command = cause.command if cause and cause.command == "not_executed" else "unknown"
    said.status, said.facts["ssh"] = None, "failed"
    return True


def _timed_out(said: CommandSaid, *, begun: bool) -> None:
    said.command, said.status = "unknown", None
    said.reason = Reason.CONNECTION_LOST if begun else Reason.HOST_UNREACHABLE if not said.stdout else Reason.REMOTE_COMMAND_FAILED
    said.evidence = "no answer within the time limit"


def _ran(said: CommandSaid, part: Part) -> None:
    if said.status in {0, None} and not (said.status is None and part.stderr):
        return
    stderr = part.stderr or [line for line in said.stdout if line.strip()][-5:]
    cause = cause_of("\n".join(stderr).encode("utf-8", "surrogatepass"), said.status if said.status is not None else 1)
    if cause is not None:
        said.reason, said.evidence, said.command, said.hint = cause.reason, cause.evidence, cause.command, cause.hint
        if _REFUSED.search(cause.evidence):
            # The manager heard it and did nothing.
            said.command = "not_executed"
        elif cause.command == "not_executed":
            # The status is that of whoever refused, and not the command's.
            said.status = None if said.facts.get("ssh") != "ok" else said.status
    elif said.status:
        said.reason = Reason.REMOTE_COMMAND_FAILED
        last = next((line.strip() for line in reversed(stderr) if line.strip() and not _SEE_ALSO.match(line.strip())), "")
        said.evidence = last[:500] or f"exit status {said.status}"
        if _REFUSED.search(said.evidence):
            said.command = "not_executed"


def _answered(said: CommandSaid, part: Part) -> None:
    """`is-active` and `status` say with their exit status what they also print: that is an answer, and no failure."""
    asks = _ASKS_STATE.search(part.command)
    word = next((line.strip() for line in said.stdout if line.strip()), "")
    if not asks or said.reason not in {None, Reason.REMOTE_COMMAND_FAILED} or said.status not in {0, 1, 2, 3, 4} or not word:
        return
    if asks["what"] == "status":
        said.reason, said.evidence = None, ""
    elif word in UNIT_STATES:
        said.reason, said.evidence = None, ""
        said.facts["unit_state"] = word


def _unit_state(said: CommandSaid, part: Part) -> None:
    """What is known of the unit that the command was about."""
    missing = next((match for line in [*part.stderr, *said.stdout] if (match := _NO_UNIT.search(line))), None)
    if missing:
        said.facts["unit_state"] = "not_found"
    elif "unit_state" in said.facts:
        return
    elif said.reason is not None and _ASKS_UNIT.search(part.command):
        said.facts["unit_state"] = "unknown"
    elif said.reason is not None and _CHANGES.search(part.command):
        said.facts["unit_state"] = "unchanged" if said.command == "not_executed" else "unknown"
