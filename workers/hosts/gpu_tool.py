"""Asking a GPU tool on a host: never for longer than it may take, and with every way of not answering told apart."""

from __future__ import annotations

from service.domain.reasons import Reason
from workers.hosts.transport import CommandResult, Transport, TransportError

KILL_AFTER_S = 2
WIRE_S = 10.0
"""What connecting and reading may take beside the tool's own time."""

TIMED_OUT = 124
KILLED = 137
NOT_FOUND = 127

KNOWN_FAILURES = {
    "driver/library version mismatch": Reason.DRIVER_LIBRARY_MISMATCH,
    "gpu is lost": Reason.GPU_LOST,
    "fallen off the bus": Reason.GPU_LOST,
    "unable to determine the device handle": Reason.GPU_LOST,
    "gpu requires reset": Reason.GPU_HARDWARE_ERROR,
    "reset required": Reason.GPU_HARDWARE_ERROR,
}
"""Words of the tools', in lower case, and what they mean."""


class ToolFailed(Exception):
    """The tool did not answer properly; the text says how, after a known reason where there is one."""


class ToolMissing(ToolFailed):
    """The tool is not installed."""


class NoDevices(ToolFailed):
    """The tool answers, and lists no GPU. That alone does not prove that there is none."""


def named(text: str) -> str:
    """The text, after the name of the reason where one is recognised."""
    lower = text.lower()
    return next((f"{reason}: {text}" for words, reason in KNOWN_FAILURES.items() if words in lower), text)


def ask(transport: Transport, program: str, arguments: list[str], timeout_s: float, accepted: frozenset[int] = frozenset({0})) -> str:
    """What the tool prints. ToolFailed where it does not answer, TransportError where the wire is to blame."""
    # The host ends it itself: over ssh a tool that hangs would outlive the connection, one more for each look.
    argv = ["timeout", "-k", str(KILL_AFTER_S), f"{timeout_s:g}", program, *arguments]
    try:
        done = transport.run(argv, deadline_s=timeout_s + KILL_AFTER_S + WIRE_S)
    except TransportError as error:
        if error.reason == Reason.REMOTE_COMMAND_FAILED:
            raise ToolFailed(f"{program} did not answer: {error.evidence}") from error
        raise
    if done.exit_status in {TIMED_OUT, KILLED} or done.signal == "KILL":
        raise ToolFailed(f"{program} did not answer within {timeout_s:g} s")
    if done.exit_status == NOT_FOUND:
        raise ToolMissing(f"{program} is not installed")
    if done.exit_status not in accepted:
        how = f"signal {done.signal}" if done.exit_status is None else f"status {done.exit_status}"
        raise _failed(f"{program} ended with {how}: {_said(done)}")
    if done.truncated:
        raise ToolFailed(f"{program}'s answer is not whole")
    return done.stdout.decode("utf-8", "replace")


def _failed(text: str) -> ToolFailed:
    return NoDevices(text) if "no devices were found" in text.lower() else ToolFailed(named(text))


def _said(done: CommandResult) -> str:
    lines = (done.stdout + b"\n" + done.stderr).decode("utf-8", "replace").splitlines()
    return next((line.strip()[:300] for line in lines if line.strip()), "it said nothing")
