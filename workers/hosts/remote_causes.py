"""Why a command on a host failed, by what it printed: the few causes that somebody can do something about."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from service.domain.reasons import Reason

NOT_EXECUTABLE = 126
NOT_FOUND = 127
EVIDENCE_CHARS = 500

# The word for password in the translations that sudo ships; a transport runs commands in the C locale, a person may not.
_ASKS = (
    "interactive authentication is required|"
    "pass(w|or)|de passe|contrase|senha|parol|lösenord|adgangskode|wachtwoord|salasana|hasło|heslo|geslo|lozink|"
    "лозинк|парол|jelszó|pasvort|κωδικ|mật khẩu|パスワード|密码|密碼|암호"
)
_ON_PATH = (
    "the program is not on the PATH that a command without a login shell gets (start-up files such as ~/.profile are not read): "
    "install it, or give its full path"
)
_SUDOERS = "no line of sudoers allows exactly this command without a password, or a later line takes it back"


@dataclass(frozen=True)
class Cause:
    """What was recognised."""

    reason: Reason
    evidence: str
    """The line that says so."""
    hint: str = ""
    """What lies behind it on a host, where the reason's own remedy is too general."""
    command: Literal["executed", "not_executed"] = "executed"
    """Whether the command that was meant got to run."""


@dataclass(frozen=True)
class _Rule:
    pattern: re.Pattern[str]
    reason: Reason
    hint: str = ""
    command: Literal["executed", "not_executed"] = "executed"


def _rule(pattern: str, reason: Reason, hint: str = "", command: Literal["executed", "not_executed"] = "executed") -> _Rule:
    return _Rule(re.compile(pattern, re.IGNORECASE), reason, hint, command)


_RULES = (
    _rule(r"^sudo\s*[:\uff1a] .*command not found", Reason.REMOTE_COMMAND_FAILED, _ON_PATH, "not_executed"),
    _rule(rf"^sudo\s*[:\uff1a].*(askpass|\btty\b|{_ASKS}|终端|終端|端末)", Reason.SUDO_PASSWORD_REQUIRED, _SUDOERS, "not_executed"),
    _rule(
        r"^sudo: (the \"no new privileges\"|.*must be owned by uid 0|effective uid is not 0|unknown user|no valid sudoers|parse error)",
        Reason.PERMISSION_DENIED,
        "sudo itself cannot work there, whatever sudoers allows",
        "not_executed",
    ),
    _rule(r"is not in the sudoers file|^sorry, user .* (is not allowed|may not run)", Reason.PERMISSION_DENIED, _SUDOERS, "not_executed"),
    _rule(
        r"not been booted with systemd|failed to connect to system scope bus",
        Reason.REMOTE_COMMAND_FAILED,
        "systemd does not run there, or not as the first process: a container, or another init system",
    ),
    _rule(
        r"failed to connect to (the )?(user scope )?bus\b",
        Reason.USER_BUS_UNAVAILABLE,
        "XDG_RUNTIME_DIR is not set or the account does not linger (loginctl enable-linger); the unit may be running all the same",
    ),
    _rule(r"^job for \S+ failed because a timeout was exceeded", Reason.SYSTEMD_START_TIMEOUT),
    _rule(r"no space left on device|disk quota exceeded|\bENOSPC\b|\bEDQUOT\b", Reason.DISK_FULL),
    _rule(r"^ssh: connect to host .*connection refused", Reason.CONNECTION_REFUSED, command="not_executed"),
    _rule(r"^ssh: (connect to host|could not resolve hostname)", Reason.HOST_UNREACHABLE, command="not_executed"),
    _rule(r"remote host identification has changed", Reason.HOST_KEY_CHANGED, command="not_executed"),
    _rule(r"host key verification failed", Reason.HOST_KEY_UNKNOWN, command="not_executed"),
    _rule(
        r"permission denied \([a-z0-9,@.-]+\)|too many authentication failures|password change required but no tty"
        r"|^this account is currently not available|your account has expired",
        Reason.AUTH_FAILED,
        command="not_executed",
    ),
    _rule(
        r"^(kex_exchange_identification|client_loop: send disconnect|connection (to|closed by|reset by) |timeout, server .* not resp)",
        Reason.CONNECTION_LOST,
    ),
    _rule(r"interactive authentication required", Reason.PERMISSION_DENIED, "polkit asks who does that; only root or a rule of polkit may"),
    _rule(r"permission denied|access denied|operation not permitted|insufficient permissions", Reason.PERMISSION_DENIED),
    _rule(r"command not found|: not found$|^env: .*no such file or directory", Reason.REMOTE_COMMAND_FAILED, _ON_PATH, "not_executed"),
)
"""The first that matches any line rules; within it, the first line."""


def cause_of(stderr: bytes, exit_status: int | None) -> Cause | None:
    """What a command's stderr says of its failure. None where it succeeded, or nothing known was said."""
    if exit_status == 0:
        return None
    lines = [line.strip() for line in stderr.decode("utf-8", "replace").splitlines()]
    for rule in _RULES:
        line = next((line for line in lines if rule.pattern.search(line)), None)
        if line is not None:
            return Cause(rule.reason, line[:EVIDENCE_CHARS], rule.hint, rule.command)
    last = next((line for line in reversed(lines) if line), f"exit status {exit_status}")[:EVIDENCE_CHARS]
    if exit_status == NOT_FOUND:
        return Cause(Reason.REMOTE_COMMAND_FAILED, last, _ON_PATH, "not_executed")
    if exit_status == NOT_EXECUTABLE:
        return Cause(Reason.PERMISSION_DENIED, last, "the program is there and may not be executed", "not_executed")
    return None


def classify(stderr: bytes, exit_status: int | None) -> Reason | None:
    """The reason alone."""
    cause = cause_of(stderr, exit_status)
    return cause.reason if cause is not None else None
