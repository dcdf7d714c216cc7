"""An account on a server of the test's own, and a client that knows both."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from service.domain.reasons import Reason
from tests.integration.hosts.ssh_server import Relay, SshServer, ed25519
from workers.hosts.known_hosts import HostKey, name_of, pin_keys
from workers.hosts.ssh import SshTransport
from workers.hosts.ssh_limits import SshLimits
from workers.hosts.transport import TransportError

QUICK = SshLimits(session_s=2.0, keepalive_s=0.2, silence_s=0.8, linger_s=0.3)


@contextmanager
def fails(reason: Reason, command: str, *words: str, within_s: float = 6.0) -> Iterator[None]:
    began = time.monotonic()
    with pytest.raises(TransportError) as caught:
        yield
    assert (caught.value.reason, caught.value.command) == (reason, command), caught.value.evidence
    for word in words:
        assert word in caught.value.evidence
    assert time.monotonic() - began < within_s


def wait_until(condition: Callable[[], object], within_s: float = 5.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        time.sleep(0.02)


class Account:
    """Files of a person who uses ssh."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = ed25519(folder / "id")
        self.known_hosts = folder / "known_hosts"
        self.config = folder / "config"
        self.write_config("")
        self._open: list[SshTransport] = []

    def write_config(self, sections: str) -> None:
        """Sections, then what holds for all."""
        everyone = f"Host *\n  User tester\n  IdentityFile {self.folder / 'id'}\n  IdentityAgent none\n  GlobalKnownHostsFile none\n"
        self.config.write_text(f"{sections}\n{everyone}  UserKnownHostsFile {self.folder / 'of_the_user'}\n")

    def pin(self, server: SshServer, *, port: int | None = None, name: str | None = None) -> None:
        keys = [HostKey(key.get_name(), key.asbytes()) for key in server.keys]
        pin_keys(self.known_hosts, name or name_of("127.0.0.1", port or server.port), keys)

    def transport(self, destination: str, limits: SshLimits = QUICK) -> SshTransport:
        made = SshTransport(destination, ssh_config=self.config, known_hosts=self.known_hosts, limits=limits)
        self._open.append(made)
        return made

    def close(self) -> None:
        for transport in self._open:
            transport.close()


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    made = Account(tmp_path)
    yield made
    made.close()


@pytest.fixture
def new_server(tmp_path: Path, account: Account) -> Iterator[Callable[[], SshServer]]:
    """Servers that let the account in."""
    made: list[SshServer] = []

    def make() -> SshServer:
        server = SshServer(ed25519(tmp_path / f"host_key_{len(made)}"))
        server.accepted.add(account.key.asbytes())
        made.append(server)
        return server

    yield make
    for server in made:
        server.close()


@pytest.fixture
def server(new_server: Callable[[], SshServer]) -> SshServer:
    return new_server()


@pytest.fixture
def ssh(server: SshServer, account: Account) -> SshTransport:
    """A transport to the server, whose key is pinned."""
    account.pin(server)
    return account.transport(f"127.0.0.1:{server.port}")


@pytest.fixture
def relay(server: SshServer) -> Iterator[Relay]:
    made = Relay(server.port)
    yield made
    made.close()
