"""What a remote command printed, and what lies behind it."""

from __future__ import annotations

import pytest

from service.domain.reasons import Reason
from workers.hosts.remote_causes import cause_of, classify

KNOWN = [
    ("sudo: a password is required", 1, Reason.SUDO_PASSWORD_REQUIRED),
    ("sudo: no tty present and no askpass program specified", 1, Reason.SUDO_PASSWORD_REQUIRED),
    ("sudo: sorry, you must have a tty to run sudo", 1, Reason.SUDO_PASSWORD_REQUIRED),
    ("sudo: Ein Passwort ist notwendig", 1, Reason.SUDO_PASSWORD_REQUIRED),  # codespell:ignore
    ("sudo: il est nécessaire de saisir un mot de passe", 1, Reason.SUDO_PASSWORD_REQUIRED),  # codespell:ignore
    ("sudo: パスワードが必要です", 1, Reason.SUDO_PASSWORD_REQUIRED),
    ("sudo: 需要密码", 1, Reason.SUDO_PASSWORD_REQUIRED),
    ("sudo\uff1a抱歉，您必须拥有一个终端来执行 sudo", 1, Reason.SUDO_PASSWORD_REQUIRED),  # noqa: RUF001 - as seen
    ("sudo: ett lösenord krävs", 1, Reason.SUDO_PASSWORD_REQUIRED),
    ("sudo: აუცილებელია ტერმინალი; ან გამოიყენეთ -S პარამეტრი, ან askpass-ის", 1, Reason.SUDO_PASSWORD_REQUIRED),
    ("Sorry, user jo is not allowed to execute '/bin/systemctl stop x' as root on gpu.", 1, Reason.PERMISSION_DENIED),
    ("jo is not in the sudoers file.", 1, Reason.PERMISSION_DENIED),
    ("sudo: expctl-host: command not found", 1, Reason.REMOTE_COMMAND_FAILED),
    ("Failed to connect to bus: No medium found", 1, Reason.USER_BUS_UNAVAILABLE),
    (
        "Failed to connect to user scope bus via local transport: $DBUS_SESSION_BUS_ADDRESS and $XDG_RUNTIME_DIR not defined",
        1,
        Reason.USER_BUS_UNAVAILABLE,
    ),
    ("Failed to connect to bus: $DBUS_SESSION_BUS_ADDRESS and $XDG_RUNTIME_DIR not defined", 1, Reason.USER_BUS_UNAVAILABLE),
    (
        "System has not been booted with systemd as init system (PID 1). Can't operate.\nFailed to connect to bus: Host is down",
        1,
        Reason.REMOTE_COMMAND_FAILED,
    ),
    ("Failed to connect to system scope bus via local transport: No such file or directory", 1, Reason.REMOTE_COMMAND_FAILED),
    ("tee: /etc/systemd/system/x.service: Permission denied", 1, Reason.PERMISSION_DENIED),
    ("Failed to stop vllm.service: Access denied", 4, Reason.PERMISSION_DENIED),
    ("Failed to stop vllm.service: Interactive authentication required.", 1, Reason.PERMISSION_DENIED),
    ("kill: (12) - Operation not permitted", 1, Reason.PERMISSION_DENIED),
    ("cp: error writing '/x': No space left on device", 1, Reason.DISK_FULL),
    ("OSError: [Errno 122] Disk quota exceeded: '/home/x'", 1, Reason.DISK_FULL),
    ("bash: line 1: nvidia-smi: command not found", 127, Reason.REMOTE_COMMAND_FAILED),
    ("sh: 1: nvidia-smi: not found", 127, Reason.REMOTE_COMMAND_FAILED),
    ("env: 'nvidia-smi': No such file or directory", 127, Reason.REMOTE_COMMAND_FAILED),
    ("unheard of", 127, Reason.REMOTE_COMMAND_FAILED),
    ("unheard of", 126, Reason.PERMISSION_DENIED),
    ("ssh: connect to host gpu port 22: Connection refused", 255, Reason.CONNECTION_REFUSED),
    ("ssh: connect to host gpu port 22: No route to host", 255, Reason.HOST_UNREACHABLE),
    ("ssh: Could not resolve hostname gpu: Name or service not known", 255, Reason.HOST_UNREACHABLE),
    ("jo@gpu: Permission denied (publickey,password).", 255, Reason.AUTH_FAILED),
    ("client_loop: send disconnect: Broken pipe", 255, Reason.CONNECTION_LOST),
]


@pytest.mark.parametrize(("stderr", "status", "reason"), KNOWN)
def test_known_causes(stderr: str, status: int, reason: Reason) -> None:
    assert classify(f"some noise before\n{stderr}\n".encode(), status) == reason


@pytest.mark.parametrize(("stderr", "status"), [("sudo: a password is required", 0), ("", 1), ("", 255), ("boom", 1), ("boom", None)])
def test_nothing_known(stderr: str, status: int | None) -> None:
    assert classify(stderr.encode(), status) is None


def test_the_evidence_is_the_line_and_the_hint_what_to_look_at() -> None:
    text = b"sudo: a terminal is required to read the password; either use the -S option\nsudo: a password is required\n"
    cause = cause_of(text, 1)
    assert cause is not None
    assert (cause.command, cause.evidence) == ("not_executed", text.splitlines()[0].decode())
    assert "sudoers" in cause.hint
    missing = cause_of(b"bash: line 1: nvidia-smi: command not found\n", 127)
    assert missing is not None
    assert "PATH" in missing.hint
    assert missing.command == "not_executed"


def test_a_unit_of_the_user_may_be_running_all_the_same() -> None:
    cause = cause_of(b"Failed to connect to bus: No medium found\n", 1)
    assert cause is not None
    assert "linger" in cause.hint


def test_bytes_that_are_no_text_and_endless_lines() -> None:
    cause = cause_of(b"\xff\xfe " + b"x" * 10_000 + b" Permission denied", 1)
    assert cause is not None
    assert len(cause.evidence) <= 500
