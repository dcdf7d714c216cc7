"""From what somebody calls an ssh destination to the machines on the way there, as ssh_config has it."""

from __future__ import annotations

import getpass
import ipaddress
import os
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko
from platformdirs import user_data_path

from workers.hosts.known_hosts import SSH_PORT, name_of
from workers.hosts.ssh_config_text import config_text

LARGEST_PORT = 65_535
MAX_MACHINES = 8
HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
# It may end up in a ProxyCommand, so nothing that a shell would read as more than a word.
USER = re.compile(r"[^\s\x00-\x1f'\"`\\;&<>|(){}$:/@-][^\s\x00-\x1f'\"`\\;&<>|(){}$:/]*")
DEFAULT_IDENTITIES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
USER_KNOWN_HOSTS = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
GLOBAL_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"


class DestinationError(ValueError):
    """No destination, or an ssh_config that does not say how to get there; the text says why."""


@dataclass(frozen=True)
class Address:
    """A destination as it was written."""

    host: str
    user: str | None = None
    port: int | None = None


@dataclass(frozen=True)
class Machine:
    """One machine on the way, the destination included, with everything needed to log in to it."""

    host: str
    port: int
    user: str
    key_host: str
    """What known_hosts calls it: HostKeyAlias, or the host."""
    key_port: int
    known_hosts: tuple[Path, ...]
    """Of the user and of the system; read only."""
    identities: tuple[Path, ...] = ()
    """Files of private keys, in the order in which they are tried."""
    identities_only: bool = False
    agent: str | None = None
    """Path of the agent's socket; None: no agent."""
    proxy_command: str | None = None
    connect_timeout_s: float | None = None

    @property
    def key_name(self) -> str:
        """As a known_hosts file writes it, such as gpu or [gpu]:2222."""
        return name_of(self.key_host, self.key_port)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{host}:{self.port}"


@dataclass(frozen=True)
class Route:
    """The machines on the way, the destination last."""

    machines: tuple[Machine, ...]
    own_known_hosts: Path
    """Where keys are pinned."""

    @property
    def destination(self) -> Machine:
        """Where it leads."""
        return self.machines[-1]

    def stages(self) -> Iterator[Route]:
        """The routes to each machine on the way, the whole route last: the order in which keys can be looked at."""
        for count in range(1, len(self.machines) + 1):
            yield Route(self.machines[:count], self.own_known_hosts)


def default_known_hosts() -> Path:
    """The project's own file."""
    return user_data_path("expctl") / "known_hosts"


def parse_destination(text: str) -> Address:
    """Read `host`, `user@host:port`, `ssh://user@host:port`, `[::1]:22`, `::1`, or an alias of ssh_config.

    DestinationError where it is none of these.
    """
    rest = text.strip().removeprefix("ssh://").removesuffix("/")
    user, at, rest = rest.rpartition("@")
    host, port = _host_and_port(rest)
    if (at and not USER.fullmatch(user)) or not _is_host(host) or port == "":
        raise DestinationError(f"{text!r} is no ssh destination; write user@host, user@host:port, or an alias of ssh_config")
    return Address(host, user or None, _port(port, text) if port is not None else None)


def _host_and_port(text: str) -> tuple[str, str | None]:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")) or ":" not in host:
            return "", None
        return host, rest[1:] if rest else None
    if text.count(":") == 1:
        host, _, port = text.partition(":")
        return host, port
    return text, None


def _is_host(host: str) -> bool:
    if ":" not in host:
        return HOST.fullmatch(host) is not None
    address, percent, zone = host.partition("%")
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return False
    return not percent or HOST.fullmatch(zone) is not None


def _port(port: str, text: str) -> int:
    if not (port.isascii() and port.isdigit()) or not 0 < int(port) <= LARGEST_PORT:
        raise DestinationError(f"{text!r}: {port!r} is no port; write a number from 1 to {LARGEST_PORT}")
    return int(port)


def resolve(destination: str, config: Path | None = None, known_hosts: Path | None = None) -> Route:
    """What ssh_config makes of a destination, jump hosts included.

    `config` is read instead of the user's and the system's ssh_config; `known_hosts` instead of the project's own file. May wait
    for a name server, or for a command of `Match exec`. DestinationError where the file cannot be read or leads nowhere.
    """
    address = parse_destination(destination)
    try:
        machines = list(_way(address, config_text(config), ()))
    except DestinationError:
        raise
    except (paramiko.SSHException, OSError, ValueError, KeyError) as error:
        raise DestinationError(f"ssh_config: {error}") from error
    return Route(tuple(machines), (known_hosts or default_known_hosts()).expanduser())


def _way(address: Address, text: str, behind: tuple[Address, ...]) -> Iterator[Machine]:
    """The machines on the way to an address, which lies on the way to those `behind` it."""
    if address in behind or len(behind) >= MAX_MACHINES:
        raise DestinationError(
            f"the jump hosts of {behind[0].host} lead through {address.host} again and again; see ProxyJump in ssh_config"
        )
    options = _lookup(address, text)
    machine = _machine(address, options)
    jumps = [parse_destination(part) for part in options["proxyjump"].split(",")] if _jumps(options) else []
    if not jumps:
        yield machine
        return
    # As with ssh -J: the first is reached as its own section says, each further one through the one before it.
    yield from _way(jumps[0], text, (*behind, address))
    for jump in jumps[1:]:
        yield _without_proxy(_machine(jump, _lookup(jump, text)))
    yield _without_proxy(machine)


def _jumps(options: dict[str, Any]) -> bool:
    """Whether ProxyJump rules: of it and ProxyCommand, the one that stands first does."""
    first = next((key for key in options if key in {"proxyjump", "proxycommand"}), None)
    return first == "proxyjump" and str(options[first]).lower() != "none"


def _without_proxy(machine: Machine) -> Machine:
    return machine if machine.proxy_command is None else Machine(**{**vars(machine), "proxy_command": None})


def _lookup(address: Address, text: str) -> dict[str, Any]:
    """The options for a host. What the destination itself says comes first, and the first value of an option rules."""
    said = f"User {address.user}\n" * bool(address.user) + f"Port {address.port}\n" * bool(address.port)
    return dict(paramiko.SSHConfig.from_text(said + text).lookup(address.host))


def _machine(address: Address, options: dict[str, Any]) -> Machine:
    host, user = str(options["hostname"]), str(options.get("user") or getpass.getuser())
    if not _is_host(host) or not USER.fullmatch(user):
        raise DestinationError(f"ssh_config makes {user}@{host} of {address.host}, which is no destination")
    port = _port(str(options.get("port", SSH_PORT)), address.host)
    alias = options.get("hostkeyalias")
    expand = _expander({"%h": host, "%n": address.host, "%p": str(port), "%r": user, "%k": str(alias or host)})
    files = f"{options.get('userknownhostsfile', USER_KNOWN_HOSTS)} {options.get('globalknownhostsfile', GLOBAL_KNOWN_HOSTS)}"
    return Machine(
        host=host,
        port=port,
        user=user,
        key_host=str(alias or host),
        key_port=SSH_PORT if alias else port,
        known_hosts=tuple(expand(file) for file in shlex.split(files) if file.lower() != "none"),
        identities=_identities(options, expand),
        identities_only=str(options.get("identitiesonly", "no")).lower() == "yes",
        agent=_agent(str(options.get("identityagent", "SSH_AUTH_SOCK")), expand),
        proxy_command=None if _jumps(options) else options.get("proxycommand"),
        connect_timeout_s=_seconds(options.get("connecttimeout")),
    )


def _expander(tokens: dict[str, str]) -> Callable[[str], Path]:
    """Of the tokens of ssh_config those that paramiko leaves alone in names of files."""
    known = {"%%": "%", "%d": str(Path.home()), "%u": getpass.getuser(), **tokens}

    def expand(file: str) -> Path:
        return Path(re.sub("%.", lambda found: known.get(found[0], found[0]), file)).expanduser()

    return expand


def _identities(options: dict[str, Any], expand: Callable[[str], Path]) -> tuple[Path, ...]:
    """Files that are named are kept where they are missing too, so that this can be said."""
    if "identityfile" in options:
        return tuple(expand(file) for file in options["identityfile"] if file.lower() != "none")
    return tuple(path for path in map(expand, DEFAULT_IDENTITIES) if path.is_file())


def _agent(value: str, expand: Callable[[str], Path]) -> str | None:
    if value.lower() == "none":
        return None
    if value == "SSH_AUTH_SOCK" or value.startswith("$"):
        return os.environ.get(value.strip("${}")) or None
    return str(expand(value))


def _seconds(value: str | None) -> float | None:
    """Only whole seconds, and none for `0` or `none`."""
    return float(value) if value is not None and value.isdigit() and int(value) > 0 else None
