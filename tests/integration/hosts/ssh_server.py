"""An ssh server in a thread, that runs commands for real or misbehaves as a test asks; and wires that fall silent."""

from __future__ import annotations

import contextlib
import io
import shlex
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from paramiko.common import cMSG_CHANNEL_REQUEST

PATIENCE_S = 10.0
BEFORE_ARGV = "exec env LC_ALL=C "


def ed25519(path: Path, passphrase: str = "") -> paramiko.PKey:
    """A new key, its private half written where a client may find it."""
    private = Ed25519PrivateKey.generate()

    def written(lock: serialization.KeySerializationEncryption) -> bytes:
        return private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, lock)

    path.touch(mode=0o600)
    path.write_bytes(written(serialization.BestAvailableEncryption(passphrase.encode()) if passphrase else serialization.NoEncryption()))
    path.with_name(path.name + ".pub").write_bytes(
        private.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    )
    return paramiko.Ed25519Key.from_private_key(io.StringIO(written(serialization.NoEncryption()).decode()))


class _Rules(paramiko.ServerInterface):
    # ruff: noqa: ARG002 - the signatures are paramiko's
    def __init__(self, server: SshServer) -> None:
        self.server = server
        self.destinations: dict[int, tuple[str, int]] = {}

    def get_allowed_auths(self, username: str) -> str:
        return self.server.allowed_auths

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self.server.attempts.append(key.asbytes())
        time.sleep(self.server.login_takes_s)
        return paramiko.AUTH_SUCCESSFUL if key.asbytes() in self.server.accepted else paramiko.AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        if self.server.refuses_commands:
            return False
        self.server.commands.append(command.decode())
        while self.server.answers_no_exec:
            time.sleep(0.01)
        threading.Thread(target=self.server.execute, args=(channel, command.decode()), daemon=True).start()
        return True

    def check_channel_direct_tcpip_request(self, chanid: int, origin: tuple[str, int], destination: tuple[str, int]) -> int:
        if not self.server.forwards:
            return paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
        self.destinations[chanid] = destination
        return paramiko.OPEN_SUCCEEDED


class SshServer:
    """Listens on loopback. Attributes may be changed while it runs."""

    def __init__(self, *keys: paramiko.PKey) -> None:
        self.keys = list(keys)
        self.accepted: set[bytes] = set()
        self.allowed_auths = "publickey"
        self.attempts: list[bytes] = []
        self.commands: list[str] = []
        self.login_takes_s = 0.0
        self.noise = b""
        self.hangs = threading.Event()
        """A command `hang` has begun."""
        self.refuses_commands = False
        self.answers_no_exec = False
        self.forwards = True
        self.connections: list[paramiko.Transport] = []
        self._listener = _listening(lambda wire: threading.Thread(target=self._serve, args=(wire,), daemon=True).start())
        self.port: int = self._listener.getsockname()[1]

    def _serve(self, wire: socket.socket) -> None:
        transport = paramiko.Transport(wire)
        for key in self.keys:
            transport.add_server_key(key)
        rules = _Rules(self)
        self.connections.append(transport)
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
            transport.start_server(server=rules)
            while transport.is_active():
                channel = transport.accept(0.2)
                if channel is not None and channel.get_id() in rules.destinations:
                    threading.Thread(target=self._forward, args=(channel, rules.destinations[channel.get_id()]), daemon=True).start()
        transport.packetizer.complete_handshake()
        transport.close()
        wire.close()

    def _forward(self, channel: paramiko.Channel, destination: tuple[str, int]) -> None:
        with contextlib.suppress(OSError), socket.create_connection(destination) as wire:
            other = threading.Thread(target=_pump, args=(channel, wire), daemon=True)
            other.start()
            _pump(wire, channel)
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            channel.close()

    def execute(self, channel: paramiko.Channel, command: str) -> None:
        """What stands after the mark decides: a scripted misbehaviour, else the shell."""
        argv = shlex.split(command.partition(BEFORE_ARGV)[2])
        while not (channel.eof_received or channel.recv_ready() or channel.closed):
            time.sleep(0.001)  # a client sends nothing before it has read that the command was taken
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            channel.sendall(self.noise)
            scripted = getattr(self, f"_{argv[0].replace('-', '_')}", None)
            if scripted is None:
                self._run(channel, command)
            else:
                channel.sendall(command.partition("'")[2].partition("\\n'")[0].encode() + b"\n")
                scripted(channel, *argv[1:])

    def _run(self, channel: paramiko.Channel, command: str) -> None:
        process = subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with process:
            threading.Thread(target=_feed, args=(channel, process), daemon=True).start()
            errors = threading.Thread(target=_pour, args=(process.stderr, channel.sendall_stderr))
            errors.start()
            _pour(process.stdout, channel.sendall)
            errors.join()
        channel.shutdown_write()
        if process.returncode < 0:
            self._die(channel, {9: "KILL", 15: "TERM"}[-process.returncode])
        else:
            channel.send_exit_status(process.returncode)
        channel.close()

    def _die(self, channel: paramiko.Channel, signal: str) -> None:
        message = paramiko.Message()
        message.add_byte(cMSG_CHANNEL_REQUEST)
        message.add_int(channel.remote_chanid)
        message.add_string("exit-signal")
        message.add_boolean(False)
        message.add_string(signal)
        message.add_boolean(False)
        message.add_string("")
        message.add_string("en")
        channel.transport._send_user_message(message)
        channel.close()

    def _end_without_status(self, channel: paramiko.Channel) -> None:
        channel.close()

    def _cut(self, channel: paramiko.Channel) -> None:
        channel.sendall(b"half of it")
        time.sleep(0.1)
        channel.transport.close()

    def _leave_something_behind(self, channel: paramiko.Channel) -> None:
        channel.sendall(b"done\n")
        channel.send_exit_status(0)

    def _hang(self, channel: paramiko.Channel) -> None:
        self.hangs.set()
        while not channel.closed:
            time.sleep(0.05)

    def close(self) -> None:
        self.answers_no_exec = False
        self._listener.close()
        for transport in self.connections:
            transport.close()
            transport.join(PATIENCE_S)


def _pump(source: socket.socket | paramiko.Channel, sink: socket.socket | paramiko.Channel) -> None:
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        while piece := source.recv(65_536):
            sink.sendall(piece)
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        sink.shutdown(socket.SHUT_WR)


def _feed(channel: paramiko.Channel, process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError, ValueError):
        while piece := channel.recv(65_536):
            process.stdin.write(piece)
        process.stdin.close()


def _pour(source: object, sink: object) -> None:
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        while piece := source.read1(65_536):
            sink(piece)


class Relay:
    """A wire that can fall silent: what it is given is acknowledged by the kernel and goes nowhere."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.silent = False
        self._sockets: list[socket.socket] = []
        self._listener = _listening(self._connect)
        self.port: int = self._listener.getsockname()[1]

    def _connect(self, near: socket.socket) -> None:
        far = socket.create_connection(("127.0.0.1", self._target))
        self._sockets += [near, far]
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65_536):
                if not self.silent:
                    sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)

    def fall_silent_after(self, moment: threading.Event) -> None:
        def wait() -> None:
            self.silent = moment.wait(PATIENCE_S)

        threading.Thread(target=wait, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        for wire in self._sockets:
            with contextlib.suppress(OSError):
                wire.shutdown(socket.SHUT_RDWR)
            wire.close()


@contextlib.contextmanager
def port_that_says(words: bytes, leaves_after_s: float | None = None) -> Iterator[int]:
    """Something that listens, says this to whoever comes, and nothing more; it may leave after that."""
    met: list[socket.socket] = []

    def meet(wire: socket.socket) -> None:
        met.append(wire)
        wire.sendall(words)
        if leaves_after_s is not None:
            time.sleep(leaves_after_s)  # what it does, not what is waited for
            wire.close()

    with _listening(meet) as listener:
        yield listener.getsockname()[1]
    for wire in met:
        wire.close()


def _listening(meet: Callable[[socket.socket], None]) -> socket.socket:
    """Listen on loopback until the socket is closed, and meet whoever comes, one after the other."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                wire, _ = listener.accept()
                meet(wire)

    threading.Thread(target=accept, daemon=True).start()
    return listener
