"""How a command reaches a host: the seam between what is kept on a host and the wire to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from workers.hosts.base import HostError

DEADLINE_S = 30.0
LIMIT_BYTES = 1_048_576


@dataclass(frozen=True)
class CommandResult:
    """How a command ended. Exactly one of `exit_status` and `signal` is set."""

    exit_status: int | None
    signal: str | None
    """Name without SIG, such as KILL."""
    stdout: bytes
    stderr: bytes
    truncated: bool = False
    """True where more than the limit was printed: the rest was read and thrown away."""

    @property
    def ok(self) -> bool:
        """Ended by itself with status 0."""
        return self.exit_status == 0


class TransportError(HostError):
    """The wire failed, not the command. `command` says whether the command was executed, as far as that is known."""

    def __init__(self, reason: str, evidence: str, command: Literal["not_executed", "unknown"]) -> None:
        super().__init__(reason, evidence)
        self.command = command


class Transport(Protocol):
    """Runs short commands on one machine. One thread at a time; opened on first use, reopened after a failure."""

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", deadline_s: float = DEADLINE_S, limit_bytes: int = LIMIT_BYTES
    ) -> CommandResult:
        """Run a command to its end. `deadline_s` bounds everything: connecting, sending, running, reading.

        `limit_bytes` bounds what is kept of each of stdout and stderr. TransportError where the wire failed or the deadline
        passed; a command that ran and failed is an answer, not an error.
        """

    def close(self) -> None:
        """Let go of the connection, if there is one."""
