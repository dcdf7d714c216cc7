"""Commands on this machine itself, with the same deadlines and limits as on any other."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence

from service.domain.reasons import Reason
from workers.hosts.kept import Kept
from workers.hosts.transport import DEADLINE_S, LIMIT_BYTES, CommandResult, TransportError

NOT_FOUND = 127
"""What a shell answers where there is no such program, and what a transport answers, here as over ssh."""
NOT_EXECUTABLE = 126
LINGER_S = 5.0
"""How long the output may stay open once the command itself has ended: a process that it left behind may hold it."""
KILLED_WITHIN_S = 5.0
PIECE_BYTES = 65_536


class LocalTransport:
    """Runs commands as children of this process, each in a session of its own, in the C locale."""

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", deadline_s: float = DEADLINE_S, limit_bytes: int = LIMIT_BYTES
    ) -> CommandResult:
        """See Transport. A program that is not there answers exit status 127, one that may not be executed 126.

        A command that has ended while something it left behind holds its output is answered LINGER_S later, as truncated.
        TransportError remote_command_failed where the deadline passed; the command and its process group are killed then.
        """
        until = time.monotonic() + deadline_s
        try:
            process = subprocess.Popen(  # noqa: S603 - an argv, no shell
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "LC_ALL": "C"},
                start_new_session=True,
                bufsize=0,
            )
        except FileNotFoundError:
            return CommandResult(NOT_FOUND, None, b"", f"{argv[0]}: command not found\n".encode())
        except PermissionError:
            return CommandResult(NOT_EXECUTABLE, None, b"", f"{argv[0]}: Permission denied\n".encode())
        except OSError as error:
            raise TransportError(Reason.REMOTE_COMMAND_FAILED, f"{argv[0]}: {error}", "not_executed") from error
        conversation = _Conversation(process, stdin, limit_bytes)
        try:
            complete = conversation.hold(until)
            ended = process.returncode is not None
        finally:
            _let_go(process)
        if not ended:
            raise TransportError(Reason.REMOTE_COMMAND_FAILED, f"{argv[0]} did not end within {deadline_s:g} s", "unknown")
        return conversation.result(complete=complete)

    def close(self) -> None:
        """Nothing is kept between commands."""


class _Conversation:
    """Feeds one process and drains it, until it has ended and closed its output."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes, limit: int) -> None:
        self._process = process
        self._pending = memoryview(stdin)
        self._out, self._err = Kept(limit), Kept(limit)

    def hold(self, until: float) -> bool:
        """True where all output was read; the process has ended where its return code is set."""
        process, handle = self._process, os.pidfd_open(self._process.pid)
        try:
            with selectors.DefaultSelector() as selector:
                for stream in (process.stdin, process.stdout, process.stderr):
                    assert stream is not None  # noqa: S101 - all three are pipes
                    os.set_blocking(stream.fileno(), False)
                    selector.register(stream, selectors.EVENT_WRITE if stream is process.stdin else selectors.EVENT_READ)
                selector.register(handle, selectors.EVENT_READ)
                return self._drain(selector, handle, until)
        finally:
            os.close(handle)

    def _drain(self, selector: selectors.BaseSelector, handle: int, until: float) -> bool:
        process = self._process
        outputs = {process.stdout: self._out, process.stderr: self._err}
        while outputs or process.returncode is None:
            left = until - time.monotonic()
            if left <= 0:
                return False
            for key, _ in selector.select(left):
                if key.fileobj is process.stdin:
                    self._write(selector)
                elif key.fd == handle:
                    selector.unregister(handle)
                    process.wait()
                    until = min(until, time.monotonic() + LINGER_S)
                else:
                    piece = os.read(key.fd, PIECE_BYTES)
                    if piece:
                        outputs[key.fileobj].feed(piece)  # type: ignore[index]  # one of the two, or it would not be here
                    else:
                        selector.unregister(key.fileobj)
                        del outputs[key.fileobj]  # type: ignore[arg-type]
        return True

    def _write(self, selector: selectors.BaseSelector) -> None:
        stream = self._process.stdin
        assert stream is not None  # noqa: S101 - a pipe
        try:
            self._pending = self._pending[os.write(stream.fileno(), self._pending[:PIECE_BYTES]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # it reads no more, which is its own business
            self._pending = self._pending[:0]
        if not self._pending:
            selector.unregister(stream)
            stream.close()

    def result(self, *, complete: bool) -> CommandResult:
        """How it ended."""
        code = self._process.returncode
        truncated = self._out.truncated or self._err.truncated or not complete
        status, name = (code, None) if code >= 0 else (None, _signal_name(-code))
        return CommandResult(status, name, self._out.data, self._err.data, truncated)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:  # one of the real-time signals between the first and the last
        return str(number)


def _let_go(process: subprocess.Popen[bytes]) -> None:
    """Close its pipes, and end the whole process group where it has not ended; what sleeps in the kernel is left to it."""
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILLED_WITHIN_S)
