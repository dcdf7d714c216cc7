"""The connections on the way to a destination, each inside the one before it, each machine's key checked."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Sequence

import paramiko

from service.domain.reasons import Reason
from workers.hosts.known_hosts import HostKey, pins_of
from workers.hosts.ssh_auth import log_in
from workers.hosts.ssh_connection import ALGORITHMS, Connection, dial
from workers.hosts.ssh_destination import Machine, Route
from workers.hosts.ssh_limits import SshLimits
from workers.hosts.transport import TransportError

PROXY_ENDS_WITHIN_S = 2.0


class Chain:
    """Opened once, from the first machine on; closed as a whole. Any thread may close it, which ends whatever waits on it."""

    def __init__(self, route: Route, limits: SshLimits) -> None:
        self.route = route
        self._limits = limits
        self._open: list[Connection] = []
        self._proxy: subprocess.Popen[bytes] | None = None
        self._closed = False

    @property
    def last(self) -> Connection:
        """The connection to the destination."""
        return self._open[-1]

    def open(self, until: float) -> None:
        """Connect, check keys and log in, machine after machine. TransportError, never executed."""
        for machine in self.route.machines:
            self.enter(machine, until)

    def enter(self, machine: Machine, until: float) -> None:
        """Connect to the next machine on the way, check its key and log in."""
        pins = pins_of(machine.key_host, machine.key_port, self.route.own_known_hosts, machine.known_hosts)
        pinned = [kind for kind in pins.kinds if kind in ALGORITHMS]
        # As OpenSSH does: a host that has several keys is asked for a pinned one first.
        connection, key = self.knock(machine, [*pinned, *(kind for kind in ALGORITHMS if kind not in pinned)], until)
        self._open.append(connection)
        pins.check(key)
        log_in(connection, until)
        connection.watch()

    def knock(self, machine: Machine, kinds: Sequence[str], until: float) -> tuple[Connection, HostKey]:
        """Connect to a machine through those entered so far, and ask for a host key of one of these types. The caller shuts it."""
        wire = self._wire(machine, until)
        connection = Connection(wire, machine, self._limits)
        try:
            key = connection.shake_hands(kinds, until)
            self._not_closed(machine)
        except BaseException:
            connection.shut()
            raise
        return connection, key

    def _wire(self, machine: Machine, until: float) -> socket.socket | paramiko.Channel:
        self._not_closed(machine)
        if self._open:
            return self._open[-1].tunnel(machine, until)
        if machine.proxy_command is None:
            return dial(machine, self._limits, until)
        ours, theirs = socket.socketpair()
        with theirs:
            self._proxy = subprocess.Popen(  # noqa: S602 - ssh_config holds a line for the shell
                f"exec {machine.proxy_command}",
                shell=True,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        return ours

    def _not_closed(self, machine: Machine) -> None:
        """Another thread may close it while it is being opened, when the deadline has passed."""
        if self._closed:
            raise TransportError(Reason.HOST_UNREACHABLE, f"{machine}: given up while connecting", "not_executed")

    def close(self) -> None:
        """Let go of everything. The first connection first: those inside it need no farewell, and cannot be held up by one."""
        self._closed = True
        for connection in self._open:
            connection.shut()
        if self._proxy is not None:
            self._proxy.terminate()
            try:
                self._proxy.wait(PROXY_ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._proxy.kill()
                self._proxy.wait()
