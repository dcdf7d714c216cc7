"""One command on one channel of an ssh connection."""

from __future__ import annotations

import secrets
import select
import shlex
import time
from collections.abc import Sequence

import paramiko

from service.domain.reasons import Reason
from workers.hosts.kept import Kept, KeptAfter
from workers.hosts.ssh_connection import WIRE_ERRORS, Connection, describe
from workers.hosts.ssh_limits import left
from workers.hosts.transport import CommandResult, TransportError

PIECE_BYTES = 32_768
TICK_S = 0.25
"""How often what rings no bell is looked at: the deadline, a status that came without the end of the output."""
SENDING_TICK_S = 0.01
NO_STATUS = -1
"""What paramiko says where a command ended without one."""


class SshCommand:
    """Feeds one command and drains it until it has ended. Raises TransportError as SshTransport.run says."""

    def __init__(
        self, connection: Connection, channel: paramiko.Channel, stdin: bytes, limit: int, until: float, deadline_s: float
    ) -> None:
        self._connection, self._channel = connection, channel
        self._pending: memoryview | None = memoryview(stdin)
        """What is still to be sent; None once its end was sent too."""
        self._until, self._deadline_s = until, deadline_s
        self._half_way = time.monotonic() + left(until) / 2
        self._asked: float | None = None
        self._requested = False
        self._word = f"expctl-{secrets.token_hex(8)}"
        self._out, self._err = KeptAfter(f"{self._word}\n".encode(), limit), Kept(limit)

    def hold(self, argv: Sequence[str]) -> CommandResult:
        """Run it to its end."""
        # The mark: what stands before it was printed by start-up files. exec: the program takes the shell's place, so that the
        # server sees the signal that ends it. env: the same words in every shell.
        command = f"printf '{self._word}\\n'; exec {shlex.join(['env', 'LC_ALL=C', *argv])}"
        try:
            self._channel.exec_command(command)
            self._requested = True
            complete = self._drain()
        except WIRE_ERRORS as error:
            raise self._broken(error) from error
        self._out.close()
        return self._result(complete=complete)

    def _drain(self) -> bool:
        """Until it has ended. True where all output was read; a process that was left behind may keep it open."""
        channel, ended_at = self._channel, None
        bell = select.poll()
        bell.register(channel.fileno(), select.POLLIN)
        while True:
            at_end = bool(channel.eof_received or channel.closed)  # asked first, so that what came before it is taken
            self._take()
            self._send()
            if at_end:
                break
            if self._ended:
                ended_at = ended_at or time.monotonic()
                if time.monotonic() - ended_at > self._connection.limits.linger_s:
                    return False
            self._in_time()
            bell.poll(1000 * left(self._until, SENDING_TICK_S if self._pending else TICK_S))
        while not self._ended:
            self._in_time()
            channel.status_event.wait(left(self._until, TICK_S))
        return bool(channel.eof_received) or self._connection.is_active()

    @property
    def _ended(self) -> bool:
        """Whether the server has said how it ended, or can no more."""
        return self._channel.exit_status_ready() or self._channel.get_id() in self._connection.ears.signals

    def _take(self) -> None:
        """All that is there, of both streams by turns, so that neither holds up the other."""
        channel = self._channel
        while True:
            out, err = channel.recv_ready(), channel.recv_stderr_ready()
            if out:
                self._out.feed(channel.recv(PIECE_BYTES))
            if err:
                self._err.feed(channel.recv_stderr(PIECE_BYTES))
            if not out and not err:
                return
            self._in_time()

    def _send(self) -> None:
        """As much as the server takes, then the end."""
        channel = self._channel
        while self._pending and channel.send_ready():
            try:
                self._pending = self._pending[channel.send(bytes(self._pending[:PIECE_BYTES])) :]
            except OSError:  # it has ended without reading all of it, which is its own business
                self._pending = None
                return
            self._in_time()
        if self._pending is not None and not self._pending:
            self._pending = None
            channel.shutdown_write()

    def _in_time(self) -> None:
        """Raise where the deadline has passed. Half-way there the host is asked for a sign, to tell later who was to blame."""
        now = time.monotonic()
        if now >= self._until:
            raise self._late()
        if self._asked is None and now >= self._half_way:
            self._asked = now
            self._connection.ask_for_life()

    def _late(self) -> TransportError:
        heard = self._connection.ears.heard
        if heard < (self._asked or self._half_way):  # never asked where a call did not come back
            evidence = f"nothing was heard for {time.monotonic() - heard:.1f} s, and the deadline of {self._deadline_s:g} s passed"
            return self._error(Reason.CONNECTION_LOST, evidence)
        return self._error(Reason.REMOTE_COMMAND_FAILED, f"the command did not end within {self._deadline_s:g} s; the host answers")

    def _broken(self, error: BaseException) -> TransportError:
        if time.monotonic() >= self._until:
            return self._late()
        if not self._requested and self._connection.is_active():
            evidence = f"{self._connection.machine}: the server refused to run a command for this account"
            return TransportError(Reason.PERMISSION_DENIED, evidence, "not_executed")
        return self._error(Reason.CONNECTION_LOST, describe(self._connection.get_exception() or error))

    def _error(self, reason: Reason, evidence: str) -> TransportError:
        return TransportError(reason, f"{self._connection.machine}: {evidence}", "unknown")

    def _result(self, *, complete: bool) -> CommandResult:
        status: int | None = self._channel.exit_status
        signal = self._connection.ears.signals.pop(self._channel.get_id(), None)
        if status == NO_STATUS:
            status = None
        if status is None and signal is None:
            lost = None if self._connection.is_active() else self._connection.get_exception()
            raise self._error(Reason.CONNECTION_LOST, describe(lost) if lost else "the command's channel was closed without a status")
        if complete and not self._out.begun:
            said = (self._out.noise.data + self._err.data).decode("utf-8", "replace").strip()
            ending = f"exit status {status}" if signal is None else f"signal {signal}"
            evidence = (
                f"{self._connection.machine}: the account's shell did not run the command ({ending}): {said[:500] or 'without a word'}"
            )
            raise TransportError(Reason.PERMISSION_DENIED, evidence, "not_executed")
        truncated = self._out.truncated or self._err.truncated or not complete
        return CommandResult(None if signal else status, signal, self._out.data, self._err.data, truncated)
