"""One ssh connection: a socket, a key exchange, a pinned host key. Signs of life in both directions."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import time
from collections.abc import Sequence
from typing import cast

import paramiko
from paramiko.common import MSG_CHANNEL_REQUEST, cMSG_GLOBAL_REQUEST
from paramiko.packet import Packetizer

from service.domain.reasons import Reason
from workers.hosts.known_hosts import HostKey
from workers.hosts.ssh_destination import Machine
from workers.hosts.ssh_limits import SshLimits, bounded, left
from workers.hosts.transport import TransportError

# It logs every failure with a traceback; here each becomes an error with its evidence.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

ALGORITHMS = {
    "ssh-ed25519": ("ssh-ed25519",),
    "ecdsa-sha2-nistp256": ("ecdsa-sha2-nistp256",),
    "ecdsa-sha2-nistp384": ("ecdsa-sha2-nistp384",),
    "ecdsa-sha2-nistp521": ("ecdsa-sha2-nistp521",),
    "ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256"),
}
"""Type of a host's key -> how it may sign. Best first."""
WIRE_ERRORS = (paramiko.SSHException, EOFError, OSError, ValueError, TypeError, LookupError, AttributeError, struct.error)
"""What paramiko raises for a connection that fails. The plain ones are its words for a peer that talks nonsense."""
KEEPALIVE_PROBES = 3
CLOSED_WITHIN_S = 2.0


class NoSuchHostKey(TransportError):
    """The host has no key of the types it was asked for."""


class Ears(Packetizer):
    """Hears every message first: notes when, and what paramiko itself throws away, the signal that ended a command."""

    def __init__(self, wire: socket.socket) -> None:
        super().__init__(wire)
        self.heard = time.monotonic()
        self.signals: dict[int, str] = {}
        """By channel."""
        self.greeting = ""
        """The last line that came before keys were exchanged: a server's version, or why there is no server."""

    def readline(self, timeout: float) -> str:
        """The next line of the greeting."""
        self.greeting = super().readline(timeout)
        return self.greeting

    def close(self) -> None:
        """Close the wire. A channel through a jump host says farewell, and fails where that connection has gone first."""
        with contextlib.suppress(*WIRE_ERRORS):
            super().close()

    def read_message(self) -> tuple[int, paramiko.Message]:
        """The next message."""
        kind, message = super().read_message()
        self.heard = time.monotonic()
        if kind == MSG_CHANNEL_REQUEST:
            request = paramiko.Message(message.asbytes())
            channel, name, _want_reply = request.get_int(), request.get_text(), request.get_boolean()
            if name == "exit-signal":
                self.signals[channel] = request.get_text()
        return kind, message


class Connection(paramiko.Transport):
    """A connection to one machine. Every failure is a TransportError whose evidence names the machine."""

    def __init__(self, wire: socket.socket | paramiko.Channel, machine: Machine, limits: SshLimits) -> None:
        super().__init__(wire, packetizer_class=Ears)
        self.machine = machine
        self.limits = limits
        self._asked = 0.0

    @property
    def ears(self) -> Ears:
        """What has been heard."""
        return cast("Ears", self.packetizer)

    def shake_hands(self, kinds: Sequence[str], until: float) -> HostKey:
        """Exchange keys, asking for host keys of the given types in that order. Gives the key that the host has proven to have."""
        self.get_security_options().key_types = [algorithm for kind in kinds for algorithm in ALGORITHMS[kind]]
        began, patience = time.monotonic(), left(until, self.limits.handshake_s)
        # Paramiko's own limits stand a little behind ours, which tells better what happened.
        self.banner_timeout = self.handshake_timeout = patience + 1.0
        try:
            self.start_client(timeout=patience)
        except WIRE_ERRORS as error:
            raise self._no_handshake(error, time.monotonic() - began) from error
        if not self.initial_kex_done:
            raise self._no_handshake(TimeoutError(), patience)
        key = self.get_remote_server_key()
        return HostKey(key.get_name(), key.asbytes())

    def _no_handshake(self, error: BaseException, seconds: float) -> TransportError:
        said = f"; it said {self.ears.greeting!r}" if self.ears.greeting else ""
        if isinstance(error, paramiko.ssh_exception.IncompatiblePeer):
            kind = NoSuchHostKey if "host key" in str(error) else TransportError
            return kind(Reason.HOST_UNREACHABLE, f"{self.machine}: {describe(error)}{said}", "not_executed")
        if any(isinstance(each, EOFError | ConnectionError) for each in (error, error.__context__)):
            evidence = f"{self.machine}: the connection was closed after {seconds:.1f} s, before keys were exchanged{said}"
            return TransportError(Reason.CONNECTION_LOST, evidence, "not_executed")
        if isinstance(error, TimeoutError):
            evidence = f"{self.machine}: connected, but no ssh server answered within {seconds:.1f} s{said}"
            return TransportError(Reason.HOST_UNREACHABLE, evidence, "not_executed")
        return TransportError(Reason.HOST_UNREACHABLE, f"{self.machine}: {describe(error)}{said}", "not_executed")

    def watch(self) -> None:
        """From now on end the connection once the peer is silent for too long. Not before the login: a server is busy with that."""
        self.packetizer.set_keepalive(self.limits.keepalive_s, self._still_there)

    def ask_for_life(self) -> None:
        """Send what every server must answer, known to it or not; set_keepalive of paramiko asks for no answer."""
        message = paramiko.Message()
        message.add_byte(cMSG_GLOBAL_REQUEST)
        message.add_string("keepalive@openssh.com")
        message.add_boolean(True)
        self._send_user_message(message)  # type: ignore[attr-defined]  # the stubs leave it out

    def _still_there(self) -> None:
        """Called in the connection's own thread while nothing comes: raising ends the connection."""
        now = time.monotonic()
        if self._asked <= self.ears.heard:
            self._asked = now  # answered, so this is the first question of a new silence
        elif now - self._asked > self.limits.silence_s:
            raise EOFError(f"nothing was heard for {now - self.ears.heard:.1f} s")
        self.ask_for_life()

    def tunnel(self, machine: Machine, until: float) -> paramiko.Channel:
        """A way through this machine to the next one."""
        patience = left(until, machine.connect_timeout_s or self.limits.connect_s)
        try:
            return self.open_channel("direct-tcpip", (machine.host, machine.port), ("127.0.0.1", 0), timeout=patience)
        except paramiko.ChannelException as error:
            refused = error.code == _PROHIBITED
            what = "does not forward connections" if refused else f"cannot reach {machine.host} port {machine.port}"
            reason = Reason.PERMISSION_DENIED if refused else Reason.HOST_UNREACHABLE
            raise TransportError(reason, f"jump host {self.machine} {what}: {error.text}", "not_executed") from error
        except WIRE_ERRORS as error:
            evidence = (
                f"jump host {self.machine} gave no way to {machine.host} port {machine.port} within {patience:.1f} s: {describe(error)}"
            )
            raise TransportError(Reason.HOST_UNREACHABLE, evidence, "not_executed") from error

    def shut(self) -> None:
        """End it, and let no thread of it live on."""
        self.packetizer.complete_handshake()  # ends the timer of one that failed
        self.close()
        self.sock.close()
        if self.ident is not None:
            with contextlib.suppress(RuntimeError):  # closed from its own thread
                self.join(CLOSED_WITHIN_S)


_PROHIBITED = 1
"""Of RFC 4254: administratively prohibited."""


def describe(error: BaseException) -> str:
    """An error in one line; some of paramiko's have no text."""
    return str(error) or ("the other side closed the connection" if isinstance(error, EOFError) else type(error).__name__)


def dial(machine: Machine, limits: SshLimits, until: float) -> socket.socket:
    """A TCP connection to a machine that notices by itself when the other end is gone."""
    until = min(until, time.monotonic() + (machine.connect_timeout_s or limits.connect_s))
    errors: list[OSError] = []
    addresses = _addresses(machine, until)
    for number, (family, address) in enumerate(addresses):
        wire = socket.socket(family, socket.SOCK_STREAM)
        wire.settimeout(max(0.001, left(until) / (len(addresses) - number)))
        try:
            wire.connect(address)
        except OSError as error:
            wire.close()
            errors.append(error)
            continue
        _watch(wire, limits)
        return wire
    refused = all(isinstance(error, ConnectionRefusedError) for error in errors)
    tried = "; ".join(f"{address[0]} port {address[1]}: {describe(error)}" for (_, address), error in zip(addresses, errors, strict=True))
    reason = Reason.CONNECTION_REFUSED if refused else Reason.HOST_UNREACHABLE
    raise TransportError(reason, f"{machine}: {tried}", "not_executed")


def _addresses(machine: Machine, until: float) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    """A name server may be slower than any deadline, and no lookup can be interrupted."""
    seconds = left(until)
    try:
        found = bounded(lambda: socket.getaddrinfo(machine.host, machine.port, type=socket.SOCK_STREAM), seconds)
    except TimeoutError as error:
        evidence = f"{machine}: the lookup of {machine.host} took longer than {seconds:.1f} s"
        raise TransportError(Reason.HOST_UNREACHABLE, evidence, "not_executed") from error
    except OSError as error:
        raise TransportError(Reason.HOST_UNREACHABLE, f"{machine}: {machine.host}: {error.strerror}", "not_executed") from error
    return [(family, cast("tuple[str, int]", address)) for family, _, _, _, address in found]


def _watch(wire: socket.socket, limits: SshLimits) -> None:
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # small messages back and forth: never wait to fill a packet
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, round(limits.keepalive_s)))
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, round(limits.keepalive_s / 2)))
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
    # What is sent and not acknowledged: without this the kernel repeats it for a quarter of an hour.
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round((limits.keepalive_s + limits.silence_s) * 1000))
