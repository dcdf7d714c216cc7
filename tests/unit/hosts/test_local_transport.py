"""LocalTransport with real processes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from service.domain.reasons import Reason
from workers.hosts import local_transport
from workers.hosts.local_transport import LocalTransport
from workers.hosts.process import all_processes
from workers.hosts.transport import TransportError

WaitUntil = Callable[..., None]


@pytest.fixture
def local() -> LocalTransport:
    return LocalTransport()


def test_output_and_exit_status(local: LocalTransport) -> None:
    result = local.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (result.exit_status, result.signal, result.stdout, result.stderr) == (3, None, b"out\n", b"err\n")
    assert not result.ok
    assert local.run(["true"]).ok


@pytest.mark.parametrize(("number", "name"), [(9, "KILL"), (15, "TERM"), (36, "36")])
def test_the_signal_that_ended_it(local: LocalTransport, number: int, name: str) -> None:
    result = local.run(["sh", "-c", f"kill -{number} $$"])
    assert (result.exit_status, result.signal) == (None, name)


def test_stdin_larger_than_any_pipe_there_and_back(local: LocalTransport) -> None:
    sent = os.urandom(3_000_000)
    result = local.run(["cat"], stdin=sent, limit_bytes=4_000_000)
    assert result.stdout == sent
    assert not result.truncated


def test_a_command_that_reads_nothing(local: LocalTransport) -> None:
    assert local.run(["true"], stdin=b"x" * 3_000_000).ok


def test_without_stdin_a_reader_sees_the_end_at_once(local: LocalTransport) -> None:
    assert local.run(["cat"], deadline_s=5).stdout == b""


def test_both_streams_are_drained_and_capped(local: LocalTransport) -> None:
    result = local.run(["sh", "-c", "head -c 5000000 /dev/zero; head -c 5000000 /dev/zero >&2"], limit_bytes=1000)
    assert (len(result.stdout), len(result.stderr), result.truncated, result.ok) == (1000, 1000, True, True)


def test_exactly_the_limit_is_not_truncated(local: LocalTransport) -> None:
    result = local.run(["printf", "12345"], limit_bytes=5)
    assert (result.stdout, result.truncated) == (b"12345", False)


def test_what_cannot_be_started_answers_as_a_shell_does(local: LocalTransport) -> None:
    missing = local.run(["no-such-program"])
    assert (missing.exit_status, missing.stderr) == (127, b"no-such-program: command not found\n")
    assert local.run(["/etc/passwd"]).exit_status == 126
    with pytest.raises(TransportError) as caught:
        local.run(["true", "x" * 10_000_000])
    assert caught.value.command == "not_executed"


def test_the_locale_is_the_plain_one(local: LocalTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    assert local.run(["sh", "-c", "echo $LC_ALL"]).stdout == b"C\n"


def test_the_deadline_ends_it_and_its_children(local: LocalTransport, tmp_path: Path, wait_until: WaitUntil) -> None:
    child = tmp_path / "child"
    began = time.monotonic()
    with pytest.raises(TransportError) as caught:
        local.run(["sh", "-c", f"sleep 600 & echo $! > {child}; wait"], deadline_s=0.5)
    assert time.monotonic() - began < 2.0
    assert (caught.value.reason, caught.value.command) == (Reason.REMOTE_COMMAND_FAILED, "unknown")
    assert "did not end within 0.5 s" in caught.value.evidence
    wait_until(lambda: int(child.read_text()) not in all_processes())


def test_the_deadline_holds_while_it_prints_and_while_it_does_not_read(local: LocalTransport) -> None:
    for argv, stdin in ((["yes"], b""), (["sleep", "600"], b"x" * 3_000_000)):
        began = time.monotonic()
        with pytest.raises(TransportError):
            local.run(argv, stdin=stdin, deadline_s=0.3)
        assert time.monotonic() - began < 2.0


def test_a_daemon_that_holds_the_output_is_not_waited_for(local: LocalTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_transport, "LINGER_S", 0.2)
    began = time.monotonic()
    result = local.run(["sh", "-c", "sleep 3 & echo started"])
    assert time.monotonic() - began < 2.0
    assert (result.exit_status, result.stdout, result.truncated) == (0, b"started\n", True)


def test_nothing_stays_open(local: LocalTransport) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        local.run([sys.executable, "-S", "-c", "pass"])
        with pytest.raises(TransportError):
            local.run(["sleep", "600"], deadline_s=0.05)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    local.close()
