"""What may go wrong before a command runs: names, sockets, keys, logins, jump hosts."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import paramiko
import pytest

from service.domain.reasons import Reason
from tests.integration.hosts.conftest import Account, fails, wait_until
from tests.integration.hosts.ssh_server import Relay, SshServer, ed25519, port_that_says
from workers.hosts.process import all_processes, command_line
from workers.hosts.ssh import SshTransport
from workers.hosts.ssh_limits import SshLimits

FIVE_MB = "head -c 5000000 /dev/zero; head -c 5000000 /dev/zero >&2"
NewServer = Callable[[], SshServer]


def test_nobody_listens(account: Account) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with fails(Reason.CONNECTION_REFUSED, "not_executed", f"127.0.0.1 port {port}"):
        account.transport(f"127.0.0.1:{port}").run(["true"])


def test_no_way_there(account: Account) -> None:
    with fails(Reason.HOST_UNREACHABLE, "not_executed", "255.255.255.255 port 22: "):
        account.transport("255.255.255.255").run(["true"])


def test_no_such_name(account: Account) -> None:
    with fails(Reason.HOST_UNREACHABLE, "not_executed", "gpu.invalid", within_s=12.0):
        account.transport("gpu.invalid").run(["true"], deadline_s=10)


def test_a_name_server_that_does_not_answer(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(3))
    with fails(Reason.HOST_UNREACHABLE, "not_executed", "the lookup of gpu took longer than"):
        account.transport("gpu").run(["true"], deadline_s=0.3)


VERSION = b"SSH-2.0-tarpit\r\n"
NO_TEXT = struct.pack(">IB", 68, 4) + b"\x14" + bytes(16) + struct.pack(">I", 2) + b"\xff\xff" + bytes(44)
"""A proposal of key exchange whose list of names is none; paramiko answers it with a UnicodeDecodeError."""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (b"", "no ssh server answered"),
        (b"HTTP/1.1 400 Bad Request\r\n", "it said 'HTTP/1.1 400 Bad Request'"),
        (VERSION, "it said 'SSH-2.0-tarpit'"),
    ],
    ids=["nothing", "http", "tarpit"],
)
def test_something_else_listens(account: Account, words: bytes, said: str) -> None:
    with port_that_says(words) as port, fails(Reason.HOST_UNREACHABLE, "not_executed", said):
        account.transport(f"127.0.0.1:{port}", SshLimits(handshake_s=0.8)).run(["true"])


def test_a_server_that_talks_nonsense(account: Account) -> None:
    with port_that_says(VERSION + NO_TEXT) as port, fails(Reason.HOST_UNREACHABLE, "not_executed", "can't decode"):
        account.transport(f"127.0.0.1:{port}").run(["true"])


def test_a_server_that_hangs_up_at_once(account: Account) -> None:
    said = fails(Reason.CONNECTION_LOST, "not_executed", "before keys were exchanged", "Exceeded MaxStartups")
    with port_that_says(b"Exceeded MaxStartups\r\n", leaves_after_s=0.0) as port, said:
        account.transport(f"127.0.0.1:{port}").run(["true"])


def test_the_deadline_bounds_connecting_too(account: Account) -> None:
    with port_that_says(b"") as port, fails(Reason.HOST_UNREACHABLE, "not_executed", within_s=2.0):
        account.transport(f"127.0.0.1:{port}", SshLimits()).run(["true"], deadline_s=0.3)


def test_a_key_nobody_has_pinned(account: Account, server: SshServer) -> None:
    with fails(Reason.HOST_KEY_UNKNOWN, "not_executed", server.keys[0].fingerprint, f"[127.0.0.1]:{server.port}"):
        account.transport(f"127.0.0.1:{server.port}").run(["true"])
    assert server.attempts == []


def test_a_changed_key(ssh: SshTransport, account: Account, server: SshServer, tmp_path: Path) -> None:
    old, server.keys = server.keys[0], [ed25519(tmp_path / "another")]
    with fails(Reason.HOST_KEY_CHANGED, "not_executed", old.fingerprint, server.keys[0].fingerprint, f"{account.known_hosts} line 1"):
        ssh.run(["true"])
    assert server.attempts == []


def test_the_login_is_refused(ssh: SshTransport, account: Account, server: SshServer) -> None:
    server.accepted.clear()
    with fails(Reason.AUTH_FAILED, "not_executed", f"{account.folder / 'id'}: refused", "tester@127.0.0.1"):
        ssh.run(["true"])


def test_a_server_that_wants_a_password(ssh: SshTransport, server: SshServer) -> None:
    server.allowed_auths = "password"
    with fails(Reason.AUTH_FAILED, "not_executed", "the server takes password", "only keys"):
        ssh.run(["true"])


def test_a_key_with_a_passphrase(account: Account, server: SshServer) -> None:
    account.pin(server)
    ed25519(account.folder / "id", "secret")
    with fails(Reason.AUTH_FAILED, "not_executed", "has a passphrase; hold it in an agent: ssh-add"):
        account.transport(f"127.0.0.1:{server.port}").run(["true"])


def test_a_key_file_that_is_missing(account: Account, server: SshServer) -> None:
    account.pin(server)
    (account.folder / "id").unlink()
    with fails(Reason.AUTH_FAILED, "not_executed", "no such file"):
        account.transport(f"127.0.0.1:{server.port}").run(["true"])


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "agent"
    try:
        process = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    except FileNotFoundError:
        pytest.skip("needs ssh-agent")
    while not path.exists():
        time.sleep(0.01)
    yield path
    process.terminate()
    process.wait()


def test_a_key_of_the_agent_whose_file_has_a_passphrase(account: Account, server: SshServer, agent: Path) -> None:
    """It comes before keys that nobody has named: a server counts attempts."""
    account.pin(server)
    ed25519(account.folder / "other")
    for name in ("other", "id"):
        subprocess.run(["ssh-add", "-q", account.folder / name], env={**os.environ, "SSH_AUTH_SOCK": str(agent)}, check=True)
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "secret", "-f", account.folder / "id"], check=True)
    account.write_config(f"Host *\n  IdentityAgent {agent}\n")
    assert account.transport(f"127.0.0.1:{server.port}").run(["true"]).ok
    assert len(set(server.attempts)) == 1


def test_an_agent_that_hangs_is_not_waited_for(account: Account, server: SshServer, tmp_path: Path) -> None:
    account.pin(server)
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(str(tmp_path / "agent"))
        hanging.listen()
        account.write_config(f"Host *\n  IdentityAgent {tmp_path / 'agent'}\n")
        assert account.transport(f"127.0.0.1:{server.port}").run(["true"], deadline_s=6).ok
        server.accepted.clear()
        with fails(Reason.AUTH_FAILED, "not_executed", f"agent {tmp_path / 'agent'}: timed out"):
            account.transport(f"127.0.0.1:{server.port}").run(["true"], deadline_s=3)


def through(account: Account, hop: SshServer, server: SshServer) -> SshTransport:
    account.write_config(
        f"Host hop\n  HostName 127.0.0.1\n  Port {hop.port}\n"
        f"Host gpu\n  HostName 127.0.0.1\n  Port {server.port}\n  ProxyJump hop\n  HostKeyAlias gpu-one\n"
    )
    return account.transport("gpu")


def test_through_a_jump_host(account: Account, server: SshServer, new_server: NewServer) -> None:
    hop = new_server()
    ssh = through(account, hop, server)
    with fails(Reason.HOST_KEY_UNKNOWN, "not_executed", hop.keys[0].fingerprint):
        ssh.run(["true"])
    account.pin(hop)
    with fails(Reason.HOST_KEY_UNKNOWN, "not_executed", "gpu-one", server.keys[0].fingerprint):
        ssh.run(["true"])
    account.pin(server, name="gpu-one")
    assert ssh.run(["echo", "there"]).stdout == b"there\n"
    assert hop.commands == []
    hop.connections[-1].close()
    assert ssh.run(["true"]).ok


def test_a_jump_host_that_forwards_nothing(account: Account, server: SshServer, new_server: NewServer) -> None:
    hop = new_server()
    hop.forwards = False
    account.pin(hop)
    with fails(Reason.PERMISSION_DENIED, "not_executed", "does not forward connections", str(hop.port)):
        through(account, hop, server).run(["true"])


def test_a_destination_that_falls_silent_behind_a_jump_host_that_lives(
    account: Account, server: SshServer, new_server: NewServer, relay: Relay
) -> None:
    hop = new_server()
    account.pin(hop)
    account.pin(server, port=relay.port)
    account.write_config(
        f"Host hop\n  HostName 127.0.0.1\n  Port {hop.port}\nHost 127.0.0.1\n  ProxyJump hop\nHost hop\n  ProxyJump none\n"
    )
    ssh = account.transport(f"127.0.0.1:{relay.port}")
    relay.fall_silent_after(server.hangs)
    with fails(Reason.CONNECTION_LOST, "unknown", "nothing was heard for"):
        ssh.run(["hang"], deadline_s=30)


def test_through_a_proxy_command(account: Account, server: SshServer) -> None:
    carry = (
        "import socket,sys,threading,os; s=socket.create_connection(('%h', %p)); "
        "t=threading.Thread(target=lambda:[s.sendall(b) for b in iter(lambda: os.read(0,65536), b'')], daemon=True); t.start(); "
        "[os.write(1,b) for b in iter(lambda: s.recv(65536), b'')]"
    )
    account.pin(server)
    account.write_config(f'Host 127.0.0.1\n  ProxyCommand {sys.executable} -c "{carry}"\n')
    ssh = account.transport(f"127.0.0.1:{server.port}")
    assert ssh.run(["echo", "there"]).stdout == b"there\n"


def test_a_proxy_command_that_fails(account: Account, server: SshServer) -> None:
    account.write_config("Host 127.0.0.1\n  ProxyCommand false\n")
    with fails(Reason.CONNECTION_LOST, "not_executed"):
        account.transport(f"127.0.0.1:{server.port}").run(["true"])


def test_a_proxy_command_that_hangs_is_ended(account: Account) -> None:
    account.write_config(f"Host gpu\n  ProxyCommand sleep 600.{os.getpid()}\n")
    with fails(Reason.HOST_UNREACHABLE, "not_executed", "no ssh server answered", within_s=2.5):
        account.transport("gpu", SshLimits(handshake_s=0.8)).run(["true"])
    assert not any(f"600.{os.getpid()}" in word for pid in all_processes() for word in command_line(pid))


def test_no_destination(account: Account) -> None:
    with fails(Reason.HOST_UNREACHABLE, "not_executed", "is no ssh destination"):
        account.transport("-oProxyCommand=id").run(["true"])


@pytest.fixture
def leaves_after_its_version() -> Iterator[int]:
    """The port of a server that goes away in the middle of the handshake."""
    with port_that_says(VERSION, leaves_after_s=0.2) as port:
        yield port


def test_no_thread_is_left_of_a_handshake_that_failed(account: Account, leaves_after_its_version: int) -> None:
    with fails(Reason.CONNECTION_LOST, "not_executed"):
        account.transport(f"127.0.0.1:{leaves_after_its_version}", SshLimits()).run(["true"])
    wait_until(lambda: not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer | paramiko.Transport)])


def test_a_failure_prints_nothing(account: Account, leaves_after_its_version: int) -> None:
    """Paramiko logs tracebacks, and Python prints what is logged and nobody handles."""
    code = """
import sys
from pathlib import Path
from workers.hosts.ssh import SshTransport
from workers.hosts.transport import TransportError
try:
    SshTransport(sys.argv[1], ssh_config=Path(sys.argv[2]), known_hosts=Path(sys.argv[3])).run(["true"])
except TransportError as error:
    print(error.reason)
"""
    argv = [sys.executable, "-c", code, f"127.0.0.1:{leaves_after_its_version}", str(account.config), str(account.known_hosts)]
    done = subprocess.run(argv, capture_output=True, check=True, timeout=10)
    assert (done.stdout, done.stderr) == (b"connection_lost\n", b"")
