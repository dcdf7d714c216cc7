"""Destinations, and what ssh_config makes of them."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from pathlib import Path

import pytest

from workers.hosts.ssh_destination import Address, DestinationError, Route, parse_destination, resolve

Resolve = Callable[..., Route]


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Resolve:
    """Resolve with a file of these lines, in a home of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / ".ssh").mkdir()

    def make(destination: str, *lines: str) -> Route:
        (tmp_path / "config").write_text("\n".join(lines) + "\n")
        return resolve(destination, tmp_path / "config", tmp_path / "own")

    return make


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("gpu", Address("gpu")),
        (" gpu ", Address("gpu")),
        ("jo@gpu", Address("gpu", "jo")),
        ("jo@gpu:2222", Address("gpu", "jo", 2222)),
        ("gpu.example.org:22", Address("gpu.example.org", None, 22)),
        ("ssh://jo@gpu:2222/", Address("gpu", "jo", 2222)),
        ("10.0.0.1", Address("10.0.0.1")),
        ("::1", Address("::1")),
        ("jo@[::1]:2222", Address("::1", "jo", 2222)),
        ("[fe80::1%eth0]", Address("fe80::1%eth0")),
        ("gpu_1", Address("gpu_1")),
        ("jo@corp@gpu", Address("gpu", "jo@corp")),
    ],
)
def test_destinations(text: str, address: Address) -> None:
    assert parse_destination(text) == address


NONE = ["", "@gpu", "jo@", "-oProxyCommand=id", "jo@-x", "-l@gpu", "gpu:", "gpu:0", "gpu:65536", "gpu:x", "gpu:²", "a b", "$(id)@gpu"]
NONE += ["gpu;id", "[gpu]:22", "[::1", "[::1]x", ":::", "ssh://", "jo:secret@gpu", "gpu/x"]


@pytest.mark.parametrize("text", NONE)
def test_no_destinations(text: str) -> None:
    with pytest.raises(DestinationError):
        parse_destination(text)


def test_without_a_config(configured: Resolve, tmp_path: Path) -> None:
    (tmp_path / ".ssh/id_ed25519").write_text("")
    route = configured("gpu")
    machine = route.destination
    assert (machine.host, machine.port, machine.user, machine.key_name) == ("gpu", 22, getpass.getuser(), "gpu")
    assert machine.identities == (tmp_path / ".ssh/id_ed25519",)
    assert machine.known_hosts[0] == tmp_path / ".ssh/known_hosts"
    assert machine.known_hosts[-1] == Path("/etc/ssh/ssh_known_hosts2")
    assert (machine.agent, machine.proxy_command, machine.connect_timeout_s) == (None, None, None)
    assert route.own_known_hosts == tmp_path / "own"


def test_options_of_an_alias(configured: Resolve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_AGENT", "/run/other")
    lines = ["HostName gpu1.lab", "User jo", "Port 2222", "IdentityFile ~/.ssh/a", "IdentityFile /keys/%r", "IdentitiesOnly yes"]
    lines += ["IdentityAgent $OTHER_AGENT", "UserKnownHostsFile ~/kh/%n.%k /kh2", "GlobalKnownHostsFile none", "ConnectTimeout 7"]
    machine = configured("gpu", "Host gpu", *lines).destination
    assert (machine.host, machine.port, machine.user, machine.key_name) == ("gpu1.lab", 2222, "jo", "[gpu1.lab]:2222")
    assert machine.identities == (tmp_path / ".ssh/a", Path("/keys/jo"))
    assert machine.identities_only
    assert machine.agent == "/run/other"
    assert machine.known_hosts == (tmp_path / "kh/gpu.gpu1.lab", Path("/kh2"))
    assert machine.connect_timeout_s == 7


def test_the_destination_itself_goes_before_the_config(configured: Resolve) -> None:
    machine = configured("me@gpu:23", "Host gpu", "  User jo", "  Port 2222", "Match user me", "  HostName for-me").destination
    assert (machine.user, machine.port, machine.host) == ("me", 23, "for-me")


def test_a_host_key_alias_is_looked_up_without_a_port(configured: Resolve) -> None:
    assert configured("gpu:2222", "HostKeyAlias One").destination.key_name == "one"


def test_jump_hosts_in_a_row(configured: Resolve) -> None:
    """The first is reached as its own section says, each further one through the one before it."""
    lines = ["Host gpu", "ProxyJump a@first:1,second", "Host first", "HostName 10.0.0.1", "ProxyJump zeroth"]
    lines += ["Host second", "ProxyJump elsewhere", "ProxyCommand nc %h %p"]
    route = configured("gpu", *lines)
    assert [str(machine).partition("@")[2] for machine in route.machines] == ["zeroth:22", "10.0.0.1:1", "second:22", "gpu:22"]
    assert [machine.proxy_command for machine in route.machines] == [None] * 4
    assert route.machines[1].user == "a"
    assert [stage.destination.host for stage in route.stages()] == ["zeroth", "10.0.0.1", "second", "gpu"]
    assert [len(stage.machines) for stage in route.stages()] == [1, 2, 3, 4]


def test_no_jump(configured: Resolve) -> None:
    assert len(configured("gpu", "Host gpu", "  ProxyJump none", "Host *", "  ProxyJump hop").machines) == 1


@pytest.mark.parametrize("lines", [("Host *", "  ProxyJump hop"), ("Host gpu", "  ProxyJump hop", "Host hop", "  ProxyJump gpu")])
def test_jumps_in_a_circle(configured: Resolve, lines: tuple[str, ...]) -> None:
    with pytest.raises(DestinationError, match="again and again"):
        configured("gpu", *lines)


def test_of_jump_and_command_the_first_rules(configured: Resolve) -> None:
    assert configured("gpu", "Host gpu", "  ProxyCommand nc %h %p", "  ProxyJump hop").destination.proxy_command == "nc gpu 22"
    assert len(configured("gpu", "Host gpu", "  ProxyJump hop", "  ProxyCommand nc %h %p").machines) == 2
    assert configured("gpu", "Host gpu", "  ProxyCommand none", "Host *", "  ProxyCommand nc %h %p").destination.proxy_command is None


def test_a_host_name_that_a_shell_would_run(configured: Resolve) -> None:
    with pytest.raises(DestinationError, match="which is no destination"):
        configured("gpu", "HostName $(id)")


def test_included_files(configured: Resolve, tmp_path: Path) -> None:
    """Which paramiko passes over; and the section goes on after it."""
    (tmp_path / ".ssh/conf.d").mkdir()
    (tmp_path / ".ssh/conf.d/one").write_text("Host gpu\n  User jo\nHost other\n  Port 9\n")
    (tmp_path / "two").write_text("Port 24\n")
    (tmp_path / "three").write_text("ConnectTimeout 9\n")
    lines = (f"include conf.d/* {tmp_path / 'two'} # {tmp_path / 'three'}", "ConnectTimeout 3")
    machine = configured("gpu", *lines).destination
    assert (machine.user, machine.port, machine.connect_timeout_s) == ("jo", 24, 3)


def test_a_file_that_includes_itself(configured: Resolve, tmp_path: Path) -> None:
    assert configured("gpu", f"Include {tmp_path / 'config'}", "Port 24").destination.port == 24


@pytest.mark.parametrize("line", ["=", "Port x", "Match", "CanonicalizeHostname yes"])
def test_a_config_that_cannot_be_read(configured: Resolve, line: str) -> None:
    with pytest.raises(DestinationError):
        configured("gpu", line)


def test_a_config_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(DestinationError, match="no such"):
        resolve("gpu", tmp_path / "no such")


def test_the_users_config_and_none_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("gpu").destination.port == 22
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text("Host gpu\n  Port 24\n")
    assert resolve("gpu").destination.port == 24
    assert resolve("gpu").own_known_hosts.name == "known_hosts"
