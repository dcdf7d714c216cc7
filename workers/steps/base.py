"""What a step is given and what it may raise. Steps know no store: they tell a Recorder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from service.domain.measurement import PhaseSummary, RequestResult
from service.domain.reasons import RULES, Reason
from service.domain.spec import Spec
from service.domain.speculation import Speculation
from service.domain.status import Outcome
from workers.engines.base import Engine
from workers.hosts.base import Host, UnitPhase, UnitState
from workers.preflight.findings import Report

PhaseKind = Literal["first_request", "warmup", "measured"]


class StepFailed(Exception):
    """The experiment cannot go on. The reason's rule says what that means and whether it may be tried again."""

    def __init__(self, reason: Reason, detail: str, evidence: str = "", *, outcome: Outcome | None = None) -> None:
        super().__init__(f"{reason}: {detail}")
        self.outcome = outcome or RULES[reason].outcome
        self.reason = reason
        self.detail = detail
        self.evidence = evidence


class Cancelled(Exception):
    """A person asked for an end."""


class ShiftOver(Exception):
    """The host is wanted back before the experiment is done; the reason's rule says whether it is queued again."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


class HandOver(Exception):
    """This worker was asked to go: leave the unit running for the next one."""


class Clock(Protocol):
    """Time as the steps see it, so that tests need not wait."""

    def monotonic(self) -> float:
        """Seconds that only grow."""

    def wait(self, seconds: float) -> None:
        """Let time pass."""


class Recorder(Protocol):
    """Where a step writes down what it sees, and where it learns that it should stop."""

    def check(self) -> None:
        """Raise Cancelled, HandOver or ClaimLost where there is cause. Called before each side effect and in each poll."""

    def note(self, *, evidence: dict[str, Any] | None = None, unit: str | None = None, invocation_id: str | None = None) -> None:
        """Keep what was found, for whoever goes on from here."""

    def invocation(self) -> str | None:
        """The invocation id that the launch step recorded."""

    def launched(self) -> dict[str, Any]:
        """Evidence of the launch step; empty before it."""

    def since_launch_s(self, ran_s: float | None = None) -> float:
        """Seconds since the launch step began, also across workers. `ran_s`: how long the unit has run by the host's own clock."""

    def longest_s(self, phase: str | None) -> float | None:
        """The longest that a phase of such a load took before; None where none was seen. `None` is what comes before the first."""

    def cursor(self) -> str | None:
        """How far the unit's log was copied."""

    def copy_log(self, lines: tuple[str, ...], cursor: str) -> None:
        """Copy log lines and move the cursor at once."""

    def copied_log(self) -> Iterable[str]:
        """Every line copied so far in this attempt."""

    def progress(self, data: dict[str, Any], *, event: Literal["load", "bench", "stalled"]) -> None:
        """Show how far it is, or that a load shows no sign of progress."""

    def facts(self, data: dict[str, Any]) -> None:
        """Add provenance."""

    def measured_levels(self) -> set[int]:
        """Levels of concurrency that were measured whole."""

    def begin_phase(self, kind: PhaseKind, concurrency: int) -> int:
        """Begin a bench phase; one cut before counts no more."""

    def add_request(self, phase: int, result: RequestResult) -> None:
        """Keep one request."""

    def end_phase(self, phase: int, summary: PhaseSummary | None, speculation: Speculation | None) -> None:
        """End a bench phase."""

    def failed_requests(self) -> list[RequestResult]:
        """Requests of measured phases that were not ok."""


@dataclass(frozen=True)
class StepContext:
    """Everything a step may use."""

    experiment_id: int
    spec: Spec
    unit: str
    port: int
    address: str
    """Where the load client reaches the engine, such as http://127.0.0.1:8001."""
    host: Host
    engine: Engine
    recorder: Recorder
    clock: Clock
    production: tuple[str, ...] = ()
    """Units that serve here by day and are parked now; whoever starts one of them ends ours."""
    run_as: str | None = None
    """Who runs rendered units; None: whoever the host runs things as."""
    preflight: Callable[[], Report] | None = None
    """Looks at the experiment before it is started; None: nobody does."""

    def living_unit(self) -> UnitState | None:
        """The unit as recorded at launch, alive; StepFailed if it is gone or another one. None for an endpoint."""
        if not self.engine.owns_process:
            return None
        state = self.observed()
        if state.phase != UnitPhase.ACTIVE:
            reason, why = why_ended(self, state)
            raise StepFailed(reason or Reason.ENGINE_DEAD, why, last_words(self))
        return state

    def observed(self) -> UnitState:
        """The unit, living or not; StepFailed where nothing is known of it, or where it lives and is not the one that was launched."""
        state = self.host.unit(self.unit)
        if state.phase == UnitPhase.UNKNOWN:
            raise StepFailed(Reason.REMOTE_COMMAND_FAILED, f"the state of {self.unit} could not be read")
        if state.phase == UnitPhase.ACTIVE and (state.invocation_id != self.recorder.invocation() or state.restarts):
            raise StepFailed(Reason.SERVER_RESTARTED_DURING_RUN, f"{self.unit} was started again by somebody else")
        return state


RESULTS = {
    "oom-kill": Reason.HOST_OUT_OF_MEMORY,
    "timeout": Reason.SYSTEMD_START_TIMEOUT,
    "start-limit-hit": Reason.CRASH_LOOP,
    "resources": Reason.EXEC_FAILED,
}
"""What systemd's own word for an ending means. Others (exit-code, signal) leave it to the engine's log."""

FORGOTTEN = "it ended with exit status 0, or was stopped"
"""systemd keeps what it knows of a unit that failed, and forgets one that did not."""
NOT_STARTED = frozenset({126, 127, 200, 203, 216, 217})
"""The shell's and systemd's exit statuses where the program could not be started (no folder, no program, no such group or user)."""


def why_ended(ctx: StepContext, state: UnitState) -> tuple[Reason | None, str]:
    """Why a unit that was launched does not live, as far as the host knows better than the engine's log; and how, in words."""
    how = f"{ctx.unit} ended{ending(state)}" if state.phase == UnitPhase.ENDED else f"{ctx.unit} is there no longer ({FORGOTTEN})"
    booted = ctx.recorder.launched().get("boot_id")
    if booted is not None and state.boot_id is not None and booted != state.boot_id:
        return Reason.HOST_REBOOTED, f"{how}: the host was rebooted since it was started"
    fired = ctx.host.given_back() if ctx.production else None
    if fired is not None:
        return Reason.HOST_UNREACHABLE, f"{how}: {fired.story}"
    started = ctx.host.running(ctx.production) if ctx.production else ()
    if started:
        return Reason.PRODUCTION_STARTED_BY_HAND, f"{how}: {', '.join(started)} was started, which ends it"
    if state.phase == UnitPhase.ENDED and state.result == "exit-code" and state.exit_status is state.signal is None:
        return Reason.EXEC_FAILED, f"{how} before its program began (a command of ExecStartPre= or ExecCondition= failed)"
    reason = RESULTS.get(state.result or "")
    return reason or (Reason.EXEC_FAILED if state.exit_status in NOT_STARTED else None), how


def ending(state: UnitState) -> str:
    """How a unit ended, in words."""
    said = f", {state.result}" if state.result not in {None, "success", "exit-code", "signal"} else ""
    if state.signal is not None:
        return f" (signal {state.signal}{said})"
    return (f" ({said.removeprefix(', ')})" if said else "") if state.exit_status is None else f" (exit status {state.exit_status}{said})"


def follow_log(ctx: StepContext) -> tuple[str, ...]:
    """Copy what the unit has logged since, in bounded pieces, and give the new lines."""
    if not ctx.engine.owns_process:
        return ()
    found: list[str] = []
    while True:
        chunk = ctx.host.read_log(ctx.unit, ctx.recorder.cursor())
        if chunk.lines or chunk.cursor != ctx.recorder.cursor():
            ctx.recorder.copy_log(chunk.lines, chunk.cursor)
        found.extend(chunk.lines)
        if chunk.at_end or not chunk.lines:
            return tuple(found)


LATE_S = 3.0
QUIET_S = 0.25
QUIET_LOOKS = 2


def rest_of_log(ctx: StepContext) -> tuple[str, ...]:
    """What a unit that has ended had logged, copied; read until twice there is nothing new, for some seconds at most.

    A busy journal writes the last lines down after systemd has told of the end.
    """
    found, quiet = list(follow_log(ctx)), 0
    until = ctx.clock.monotonic() + LATE_S
    while ctx.engine.owns_process and quiet < QUIET_LOOKS and ctx.clock.monotonic() < until:
        ctx.clock.wait(QUIET_S)
        more = follow_log(ctx)
        found += more
        quiet = 0 if more else quiet + 1
    return tuple(found)


SUMMING_UP = re.compile(r"Failed to start |(?:Stopped|Stopping) |\S+\.service: (?:Failed with result|Failed to run '|Consumed )")
"""What systemd says last of every unit that fails; why it did stands before that."""


def last_words(ctx: StepContext) -> str:
    """The root cause that the log names, else its last line that tells something."""
    rest_of_log(ctx)
    reader = ctx.engine.load_log()
    lines = list(ctx.recorder.copied_log())
    reader.feed(lines)
    return reader.progress.evidence or last_telling(lines)


def last_telling(lines: Sequence[str]) -> str:
    """The last line of a log that is not empty and no summing up of systemd's, else the last that is not empty."""
    said = [line.strip() for line in lines if line.strip()]
    return next((line for line in reversed(said) if not SUMMING_UP.match(line)), said[-1] if said else "")
