"""Commands on another machine, over ssh: never for longer than their deadline, never trusting a key that is not pinned."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import paramiko

from service.domain.reasons import Reason
from workers.hosts.ssh_chain import Chain
from workers.hosts.ssh_command import SshCommand
from workers.hosts.ssh_connection import WIRE_ERRORS, Connection, describe
from workers.hosts.ssh_destination import DestinationError, Route, resolve
from workers.hosts.ssh_limits import SshLimits, bounded, cut_at, left
from workers.hosts.transport import DEADLINE_S, LIMIT_BYTES, CommandResult, TransportError

CUT_AFTER_S = 0.5
"""How long after the deadline the connection is cut under a call of paramiko that does not come back."""


class SshTransport:
    """Runs commands on one destination. The connection is opened on first use, kept, and opened anew after a failure.

    A command runs under the account's shell, without a terminal, in the C locale. What start-up files print on stdout before it
    is left out of the answer.
    """

    def __init__(
        self, destination: str, *, ssh_config: Path | None = None, known_hosts: Path | None = None, limits: SshLimits | None = None
    ) -> None:
        """See ssh_destination.resolve; nothing is read or opened before the first command."""
        self._destination = destination
        self._ssh_config = ssh_config
        self._known_hosts = known_hosts
        self._limits = limits or SshLimits()
        self._lock = threading.Lock()
        self._chain: Chain | None = None

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", deadline_s: float = DEADLINE_S, limit_bytes: int = LIMIT_BYTES
    ) -> CommandResult:
        """See Transport. A program that is not there answers exit status 127, one that may not be executed 126.

        TransportError, besides what connecting may meet: connection_lost where the connection broke or the host fell silent,
        remote_command_failed where the host is well but the command did not end in time (it may still run there),
        permission_denied where the account may not run commands.
        """
        until = time.monotonic() + deadline_s
        if not self._lock.acquire(timeout=deadline_s):
            evidence = f"{self._destination}: another thread used the connection for {deadline_s:g} s"
            raise TransportError(Reason.HOST_UNREACHABLE, evidence, "not_executed")
        try:
            with cut_at(until + CUT_AFTER_S, self._cut):
                channel, connection = self._session(until)
                with contextlib.closing(channel):
                    return SshCommand(connection, channel, stdin, limit_bytes, until, deadline_s).hold(argv)
        except BaseException:
            self._drop()  # whatever it was, nothing is known of the state of this connection
            raise
        finally:
            self._lock.release()

    def close(self) -> None:
        """Let go of the connection, if there is one; a command that runs is waited for. The next command opens it anew."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        chain, self._chain = self._chain, None
        if chain is not None:
            chain.close()

    def _cut(self) -> None:
        chain = self._chain
        if chain is not None:
            chain.close()

    def _session(self, until: float) -> tuple[paramiko.Channel, Connection]:
        """A channel for one command. A connection that died while nobody used it is replaced: nothing was asked of it yet."""
        if self._chain is not None:
            with contextlib.suppress(TransportError):
                return self._open_channel(self._chain, min(left(until) / 2, self._limits.session_s))
            self._drop()
        self._chain = chain = Chain(self._route(until), self._limits)
        chain.open(until)
        return self._open_channel(chain, left(until))

    def _route(self, until: float) -> Route:
        seconds = left(until, self._limits.connect_s)
        try:
            return bounded(lambda: resolve(self._destination, self._ssh_config, self._known_hosts), seconds)
        except DestinationError as error:
            raise TransportError(Reason.HOST_UNREACHABLE, str(error), "not_executed") from error
        except TimeoutError as error:
            evidence = f"{self._destination}: reading ssh_config took longer than {seconds:.1f} s"
            raise TransportError(Reason.HOST_UNREACHABLE, evidence, "not_executed") from error

    def _open_channel(self, chain: Chain, seconds: float) -> tuple[paramiko.Channel, Connection]:
        connection = chain.last
        try:
            return connection.open_session(timeout=seconds), connection
        except paramiko.ChannelException as error:
            evidence = f"{connection.machine}: the server opens no session: {error.text}"
            raise TransportError(Reason.PERMISSION_DENIED, evidence, "not_executed") from error
        except WIRE_ERRORS as error:
            evidence = f"{connection.machine}: no session within {seconds:.1f} s: {describe(error)}"
            raise TransportError(Reason.CONNECTION_LOST, evidence, "not_executed") from error
