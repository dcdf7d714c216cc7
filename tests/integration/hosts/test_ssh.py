"""Commands by SshTransport, on a server that runs them for real, or misbehaves."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import pytest

from service.domain.reasons import Reason
from tests.integration.hosts.conftest import QUICK, Account, fails, wait_until
from tests.integration.hosts.ssh_server import Relay, SshServer
from workers.hosts.ssh import SshTransport
from workers.hosts.ssh_command import SshCommand
from workers.hosts.ssh_connection import Connection
from workers.hosts.ssh_limits import SshLimits

FIVE_MB = "head -c 5000000 /dev/zero; head -c 5000000 /dev/zero >&2"
NewServer = Callable[[], SshServer]


def test_output_and_exit_status(ssh: SshTransport) -> None:
    result = ssh.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (result.exit_status, result.signal) == (3, None)
    assert (result.stdout, result.stderr) == (b"out\n", b"err\n")
    assert not result.ok
    assert not result.truncated
    assert ssh.run(["true"]).ok


def test_words_arrive_as_they_are(ssh: SshTransport) -> None:
    words = ["a b", "$HOME", "*", "'", '"', "", "x;y", "\\n", "é", "-n", "`id`", "new\nline"]
    result = ssh.run([sys.executable, "-c", "import sys; print(ascii(sys.argv[1:]))", *words])
    assert result.stdout.decode().strip() == ascii(words)


def test_the_locale_is_the_plain_one(ssh: SshTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    assert ssh.run(["sh", "-c", "echo $LC_ALL"]).stdout == b"C\n"


def test_a_program_that_is_not_there(ssh: SshTransport) -> None:
    result = ssh.run(["no-such-program"])
    assert result.exit_status == 127
    assert b"no-such-program" in result.stderr


def test_the_signal_that_ended_it_is_no_lost_connection(ssh: SshTransport) -> None:
    result = ssh.run(["sh", "-c", "echo x; kill -9 $$"])
    assert (result.exit_status, result.signal) == (None, "KILL")
    assert result.stdout == b"x\n"
    assert ssh.run(["true"]).ok


def test_five_megabytes_on_both_streams_are_drained_and_capped(ssh: SshTransport) -> None:
    result = ssh.run(["sh", "-c", FIVE_MB], limit_bytes=1000)
    assert (len(result.stdout), len(result.stderr)) == (1000, 1000)
    assert result.ok
    assert result.truncated


def test_five_megabytes_there_and_back(ssh: SshTransport) -> None:
    sent = os.urandom(5_000_000)
    result = ssh.run(["cat"], stdin=sent, limit_bytes=6_000_000)
    assert result.stdout == sent
    assert not result.truncated


def test_a_command_that_does_not_read_what_it_is_sent(ssh: SshTransport) -> None:
    assert ssh.run(["true"], stdin=b"x" * 5_000_000).ok


def test_what_start_up_files_print_is_left_out(ssh: SshTransport, server: SshServer) -> None:
    server.noise = b"Welcome!\nActiveState=maintenance\n" * 1000
    assert ssh.run(["echo", "ActiveState=active"]).stdout == b"ActiveState=active\n"


def test_one_connection_serves_many_commands(ssh: SshTransport, server: SshServer) -> None:
    for _ in range(3):
        ssh.run(["true"])
    assert len(server.connections) == 1


def test_it_is_opened_anew_after_close_and_after_the_server_has_gone_in_between(ssh: SshTransport, server: SshServer) -> None:
    ssh.run(["true"])
    ssh.close()
    assert ssh.run(["true"]).ok
    server.connections[-1].close()
    assert ssh.run(["true"]).ok
    assert len(server.connections) == 3


def test_threads_take_turns(ssh: SshTransport, server: SshServer) -> None:
    results = []
    threads = [threading.Thread(target=lambda: results.append(ssh.run(["sleep", "0.05"]).ok)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4
    assert len(server.connections) == 1


@pytest.mark.parametrize("limits", [QUICK, SshLimits()])
def test_a_command_that_hangs_on_a_host_that_is_well(account: Account, server: SshServer, limits: SshLimits) -> None:
    """Also where no keepalive falls into the time."""
    account.pin(server)
    ssh = account.transport(f"127.0.0.1:{server.port}", limits)
    with fails(Reason.REMOTE_COMMAND_FAILED, "unknown", "did not end within 0.8 s", "the host answers"):
        ssh.run(["hang"], deadline_s=0.8)
    assert ssh.run(["true"]).ok
    assert len(server.connections) == 2


def test_a_login_that_takes_longer_than_a_living_peer_may_be_silent(ssh: SshTransport, server: SshServer) -> None:
    server.login_takes_s = 0.8
    assert ssh.run(["true"]).ok


def test_a_command_that_hangs_after_connecting_took_most_of_the_time(account: Account, server: SshServer) -> None:
    account.pin(server)
    ssh = account.transport(f"127.0.0.1:{server.port}", SshLimits())
    ssh.run(["true"])
    connection = ssh._chain.last
    channel = connection.open_session(timeout=5)
    with fails(Reason.REMOTE_COMMAND_FAILED, "unknown", "did not end within 30 s", "the host answers"):
        SshCommand(connection, channel, b"", 1000, until=time.monotonic() + 0.8, deadline_s=30).hold(["hang"])
    channel.close()


def test_a_command_that_never_stops_printing(ssh: SshTransport) -> None:
    with fails(Reason.REMOTE_COMMAND_FAILED, "unknown", "did not end within 0.6 s"):
        ssh.run(["yes"], deadline_s=0.6)


def test_a_server_that_does_not_even_answer_the_request(account: Account, server: SshServer) -> None:
    """Which paramiko waits for without any limit of its own."""
    account.pin(server)
    server.answers_no_exec = True
    with fails(Reason.CONNECTION_LOST, "unknown", "nothing was heard"):
        account.transport(f"127.0.0.1:{server.port}", SshLimits()).run(["true"], deadline_s=0.5)


def test_a_connection_that_breaks_in_the_middle(ssh: SshTransport) -> None:
    with fails(Reason.CONNECTION_LOST, "unknown"):
        ssh.run(["cut"])
    assert ssh.run(["true"]).ok


def test_a_command_that_ends_without_a_word(ssh: SshTransport) -> None:
    with fails(Reason.CONNECTION_LOST, "unknown", "without a status"):
        ssh.run(["end-without-status"])


def test_output_that_stays_open_after_the_end_is_not_waited_for(ssh: SshTransport) -> None:
    result = ssh.run(["leave-something-behind"])
    assert (result.exit_status, result.stdout, result.truncated) == (0, b"done\n", True)


def test_an_account_that_may_run_no_commands(ssh: SshTransport, server: SshServer) -> None:
    server.refuses_commands = True
    with fails(Reason.PERMISSION_DENIED, "not_executed", "refused to run a command"):
        ssh.run(["true"])


def test_a_shell_that_runs_something_else(ssh: SshTransport, server: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    run = server._run
    monkeypatch.setattr(server, "_run", lambda channel, _: run(channel, "echo This account is currently not available.; exit 1"))
    with fails(Reason.PERMISSION_DENIED, "not_executed", "exit status 1", "currently not available"):
        ssh.run(["true"])


def test_a_peer_that_falls_silent_is_noticed_during_a_command(account: Account, server: SshServer, relay: Relay) -> None:
    account.pin(server, port=relay.port)
    ssh = account.transport(f"127.0.0.1:{relay.port}")
    relay.fall_silent_after(server.hangs)
    with fails(Reason.CONNECTION_LOST, "unknown", "nothing was heard for"):
        ssh.run(["hang"], deadline_s=30)


def test_a_peer_that_fell_silent_before_is_noticed_and_replaced(account: Account, server: SshServer, relay: Relay) -> None:
    account.pin(server, port=relay.port)
    ssh = account.transport(f"127.0.0.1:{relay.port}", SshLimits(session_s=0.5))
    assert ssh.run(["true"]).ok
    relay.silent = True
    with fails(Reason.HOST_UNREACHABLE, "not_executed"):
        ssh.run(["true"], deadline_s=1.5)
    relay.silent = False
    assert ssh.run(["true"]).ok


def test_a_peer_that_falls_silent_within_a_short_deadline_is_told_from_a_slow_command(
    account: Account, server: SshServer, relay: Relay
) -> None:
    account.pin(server, port=relay.port)
    ssh = account.transport(f"127.0.0.1:{relay.port}", SshLimits())
    relay.fall_silent_after(server.hangs)
    with fails(Reason.CONNECTION_LOST, "unknown", "nothing was heard for"):
        ssh.run(["hang"], deadline_s=1.0)


def test_stdin_into_silence_ends_at_the_deadline(account: Account, server: SshServer, relay: Relay) -> None:
    account.pin(server, port=relay.port)
    ssh = account.transport(f"127.0.0.1:{relay.port}", SshLimits())
    relay.fall_silent_after(server.hangs)
    with fails(Reason.CONNECTION_LOST, "unknown"):
        ssh.run(["hang"], stdin=b"x" * 50_000_000, deadline_s=1.0)


def test_nothing_of_it_lives_on(ssh: SshTransport) -> None:
    ssh.run(["true"])
    ssh.close()
    wait_until(lambda: not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer | Connection)])


def test_a_signal_is_not_confused_by_a_next_command(ssh: SshTransport) -> None:
    for _ in range(3):
        assert ssh.run(["sh", "-c", "kill -15 $$"]).signal == signal.Signals.SIGTERM.name.removeprefix("SIG")
        assert ssh.run(["true"]).ok
