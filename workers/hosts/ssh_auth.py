"""Logging in by a key: of the agent, or of a file without a passphrase. Nobody is there to type at night."""

from __future__ import annotations

import base64
import binascii
import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import paramiko
from paramiko.agent import AgentSSH

from service.domain.reasons import Reason
from workers.hosts.known_hosts import HostKey
from workers.hosts.ssh_connection import ALGORITHMS, WIRE_ERRORS, Connection, describe
from workers.hosts.ssh_destination import Machine
from workers.hosts.ssh_limits import left
from workers.hosts.transport import TransportError

AGENT_ANSWERS_WITHIN_S = 5.0
"""And within a third of the time that is left, so that there is some for the key files."""


CERTIFICATE = "-cert-v01@openssh.com"


@dataclass(frozen=True)
class Candidate:
    """A key to try, or why there is none."""

    label: str
    key: paramiko.PKey | None = None
    why_not: str = ""


class _Agent(AgentSSH):
    """paramiko's own waits for the agent for ever, and knows no IdentityAgent."""

    def __init__(self, path: str, seconds: float) -> None:
        super().__init__()
        self._wire = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._wire.settimeout(max(0.001, seconds))
            self._wire.connect(path)
            self._connect(self._wire)  # type: ignore[attr-defined]  # the stubs leave it out
        except BaseException:
            self._wire.close()
            raise

    def close(self) -> None:
        self._wire.close()


def log_in(connection: Connection, until: float) -> None:
    """Try the keys of ssh_config and of the agent until one is taken.

    TransportError auth_failed with everything that was tried; host_unreachable where the server fell silent.
    """
    machine = connection.machine
    tried: list[str] = []
    if _attempt(connection, "no key at all", None, tried, until):
        return  # an account that needs no proof
    with contextlib.ExitStack() as stack:
        for candidate in _candidates(machine, stack, tried, until):
            if candidate.key is None:
                tried.append(f"{candidate.label}: {candidate.why_not}")
            elif _attempt(connection, candidate.label, candidate.key, tried, until):
                return
    raise TransportError(Reason.AUTH_FAILED, f"{machine}: tried {'; '.join(tried)}", "not_executed")


def _attempt(connection: Connection, label: str, key: paramiko.PKey | None, tried: list[str], until: float) -> bool:
    """True where the server lets us in. TransportError where it ends the connection, or wants no keys."""
    machine, patience = connection.machine, left(until, connection.limits.auth_s)
    connection.auth_timeout = patience
    try:
        further = connection.auth_none(machine.user) if key is None else connection.auth_publickey(machine.user, key)
    except paramiko.BadAuthenticationType as error:
        tried.append(f"{label}: the server takes {', '.join(error.allowed_types)}")
        if "publickey" in error.allowed_types:
            return False
        raise TransportError(
            Reason.AUTH_FAILED, f"{machine}: tried {'; '.join(tried)}, and only keys can be used here", "not_executed"
        ) from error
    except WIRE_ERRORS as error:
        if left(until) <= 0 or "timeout" in str(error):
            evidence = f"{machine}: no answer to the login within {patience:.1f} s (at {label})"
            raise TransportError(Reason.HOST_UNREACHABLE, evidence, "not_executed") from error
        tried.append(f"{label}: refused" if connection.is_active() else f"{label}: the connection ended: {describe(error)}")
        if connection.is_active():
            return False
        raise TransportError(Reason.AUTH_FAILED, f"{machine}: tried {'; '.join(tried)}", "not_executed") from error
    if further:
        tried.append(f"{label}: taken, but the server also wants {', '.join(further)}")
    return connection.is_authenticated()


def _candidates(machine: Machine, stack: contextlib.ExitStack, tried: list[str], until: float) -> Iterator[Candidate]:
    """A server counts attempts, so those first that somebody has named: keys of the agent that files are named for, then the files."""
    held = _of_agent(machine, stack, tried, until)
    named = {blob for blob in map(_public_blob, machine.identities) if blob is not None}
    sent = set()
    for candidate in held:
        if candidate.key is not None and candidate.key.asbytes() in named:
            sent.add(candidate.key.asbytes())
            yield candidate
    for path in machine.identities:
        candidate = _of_file(path)
        if candidate.key is None or candidate.key.asbytes() not in sent:
            yield candidate
    if not machine.identities_only:
        yield from (candidate for candidate in held if candidate.key is None or candidate.key.asbytes() not in named)


def _of_agent(machine: Machine, stack: contextlib.ExitStack, tried: list[str], until: float) -> list[Candidate]:
    if machine.agent is None:
        tried.append("no agent (SSH_AUTH_SOCK or IdentityAgent)")
        return []
    try:
        agent = stack.enter_context(contextlib.closing(_Agent(machine.agent, left(until, AGENT_ANSWERS_WITHIN_S * 3) / 3)))
    except WIRE_ERRORS as error:
        tried.append(f"agent {machine.agent}: {describe(error)}")
        return []
    keys = agent.get_keys()
    if not keys:
        tried.append(f"agent {machine.agent}: holds no key")
    return [_held(key) for key in keys]


def _held(key: paramiko.AgentKey) -> Candidate:
    label = f"agent's {HostKey(key.get_name(), key.asbytes())} {key.comment}".rstrip()
    if key.get_name().removesuffix(CERTIFICATE) not in ALGORITHMS:  # such as those of security tokens, which want to be touched
        return Candidate(label, why_not="keys of this type are not supported")
    return Candidate(label, key)


def _of_file(path: Path) -> Candidate:
    try:
        return Candidate(str(path), paramiko.PKey.from_path(path))
    except FileNotFoundError:
        return Candidate(str(path), why_not="no such file")
    except (TypeError, paramiko.PasswordRequiredException):  # what cryptography raises
        return Candidate(str(path), why_not="has a passphrase; hold it in an agent: ssh-add")
    except (OSError, ValueError, paramiko.SSHException, paramiko.pkey.UnknownKeyType) as error:
        return Candidate(str(path), why_not=f"cannot be used: {describe(error)}")


def _public_blob(path: Path) -> bytes | None:
    """Of the file beside a private key, which tells what it is even where a passphrase locks it."""
    try:
        fields = path.with_name(path.name + ".pub").read_text(encoding="utf-8", errors="replace").split()
        return base64.b64decode(fields[1], validate=True)
    except (OSError, IndexError, binascii.Error):
        return None
