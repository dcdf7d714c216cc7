"""The steps of a command: a program that does its work and ends. It is never started twice in one attempt."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from service.domain.engine_spec import CommandEngine as CommandSpec
from service.domain.reasons import Reason
from workers.engines.command import CommandProgress, ProgressPattern
from workers.hosts.base import HostError, UnitDefinition, UnitPhase, UnitState
from workers.steps.base import StepContext, StepFailed, ending, follow_log, rest_of_log, why_ended
from workers.steps.before import look_before
from workers.steps.clear import clear, end_left_overs

POLL_S = 0.5
PROGRESS_EVERY_S = 2.0
TAIL_LINES = 1000
"""So many of the newest lines are kept at hand, for progress and last words."""
LAST_WORDS = 10
LAST_WORDS_CHARS = 300
MAX_ARTIFACT_BYTES = 10 * 2**30

ABOUT_TO_START = "after:"
"""Recorded in place of an invocation before the start, with the invocation that was there until then: it tells a worker that
goes on from here whether the command was started."""

TOO_LONG = "[expctl] the command took longer than engine.timeout and is ended"
"""Goes into the log before the command is ended, so that a worker that goes on from here knows why it ended."""


def clear_for_command(ctx: StepContext) -> None:
    """Nothing of ours may be left. The GPUs are proven free only for a command that asks for some."""
    if _spec(ctx).gpus != "none":
        clear(ctx)
        return
    if ctx.host.unit(ctx.unit).phase == UnitPhase.ACTIVE:
        ctx.recorder.note(evidence={"cleared": "skipped: the unit runs already"})
        return
    look_before(ctx)
    ctx.recorder.note(evidence={"ended": end_left_overs(ctx), "gpus": "not asked for"})


def launch_command(ctx: StepContext) -> None:
    """Start the command unless this attempt has done so before, whether it still runs or not."""
    state = _known(ctx)
    recorded = ctx.recorder.invocation()
    if recorded is None:
        recorded = f"{ABOUT_TO_START}{state.invocation_id or ''}"
        ctx.recorder.check()
        ctx.recorder.note(unit=ctx.unit, invocation_id=recorded)
    if not recorded.startswith(ABOUT_TO_START):
        state = _ours(ctx)
    elif state.phase == UnitPhase.NOT_FOUND or recorded == f"{ABOUT_TO_START}{state.invocation_id}":
        state = _start(ctx, recorded.removeprefix(ABOUT_TO_START))
    wanted = _definition(ctx)
    evidence = {"argv": list(wanted.argv), "cwd": wanted.cwd, "pid": state.main_pid, "boot_id": state.boot_id}
    ctx.recorder.note(unit=ctx.unit, invocation_id=state.invocation_id, evidence=evidence)


def run_command(ctx: StepContext) -> None:
    """Follow the command until it has ended, or end it when its time is over. Its files are kept also where it failed."""
    watch = _Watch(ctx)
    state = _ended(ctx, watch)
    if state.left_over_pids:
        # What it left running could go on writing to the files that are about to be kept.
        ctx.recorder.note(evidence={"left_over_pids": list(state.left_over_pids)})
        ctx.host.stop_unit(ctx.unit)
    watch.read()
    watch.look(last=True)
    failure = _failure(ctx, state, watch)
    ctx.recorder.facts({"engine": ctx.engine.kind, "command": {"exit_status": state.exit_status, "signal": state.signal, **watch.facts()}})
    if failure is None:
        return
    try:
        keep_artifacts(ctx)
    except HostError as error:
        # Why the command failed is the better news.
        ctx.recorder.facts({"artifact_warnings": [error.evidence]})
    raise failure


def keep_artifacts(ctx: StepContext) -> None:
    """Copy the command's files into the data folder, and note the machine they come from."""
    spec = _spec(ctx)
    follow_log(ctx)
    ctx.recorder.facts({"host": ctx.host.facts()})
    if not spec.artifacts:
        return
    kept = ctx.host.collect_files(spec.artifacts, _folder(ctx), str(ctx.experiment_id), MAX_ARTIFACT_BYTES, ctx.recorder.check)
    files = [asdict(file) for file in kept.files]
    ctx.recorder.facts({"artifacts": files, "artifacts_folder": kept.folder, "artifact_warnings": list(kept.warnings)})


def _spec(ctx: StepContext) -> CommandSpec:
    if not isinstance(ctx.spec.engine, CommandSpec):
        raise TypeError(f"experiment {ctx.experiment_id} is no command")
    return ctx.spec.engine


def _folder(ctx: StepContext) -> str:
    return _spec(ctx).cwd or ctx.host.work_folder(ctx.unit)


def _definition(ctx: StepContext, before: str = "") -> UnitDefinition:
    wanted = ctx.engine.launch()
    if wanted is None:
        raise TypeError(f"experiment {ctx.experiment_id} has nothing to launch")
    return UnitDefinition(
        name=ctx.unit,
        argv=wanted.argv,
        env=wanted.env,
        cwd=_folder(ctx),
        user=_spec(ctx).user or ctx.run_as,
        conflicts=ctx.production,
        once=before,
    )


def _start(ctx: StepContext, before: str) -> UnitState:
    ctx.recorder.check()
    try:
        return ctx.host.start_unit(_definition(ctx, before))
    except HostError as error:
        cwd = _spec(ctx).cwd
        about_cwd = error.reason == Reason.EXEC_FAILED and cwd is not None and error.evidence.startswith(f"{cwd}: ")
        detail = f"engine.cwd cannot be entered: {error.evidence}" if about_cwd else error.evidence
        raise StepFailed(Reason(error.reason), detail, error.evidence) from error


@dataclass
class _Looked:
    """What was found and when it was last looked for."""

    at: float
    shown: CommandProgress | None = None


class _Watch:
    """The command's log as it grows: its newest lines, and how far they say it is."""

    def __init__(self, ctx: StepContext) -> None:
        self._ctx = ctx
        self._pattern = ProgressPattern(_spec(ctx).progress)
        self._looked = _Looked(ctx.clock.monotonic() - PROGRESS_EVERY_S)
        self._fresh: deque[str] = deque(maxlen=TAIL_LINES)
        self._tail: deque[str] = deque(maxlen=LAST_WORDS)
        self.timed_out = False
        self._take(ctx.recorder.copied_log())

    def _take(self, lines: Iterable[str]) -> None:
        for line in lines:
            if line == TOO_LONG:
                self.timed_out = True
            elif line.strip():
                self._fresh.append(line)
                self._tail.append(line)

    def read(self) -> None:
        """Copy what was logged since."""
        self._take(follow_log(self._ctx))

    def read_rest(self) -> None:
        """The same, once it has ended."""
        self._take(rest_of_log(self._ctx))

    def look(self, *, last: bool = False) -> None:
        """Show progress where there is any that is new; now and then only, since each look starts a process."""
        now = self._ctx.clock.monotonic()
        if not last and now - self._looked.at < PROGRESS_EVERY_S:
            return
        found = self._pattern.look(list(self._fresh))
        self._fresh.clear()
        self._looked.at = now
        if found is not None and found != self._looked.shown:
            self._looked.shown = found
            self._ctx.recorder.progress(found.shown(), event="bench")

    def give_up(self) -> None:
        """Write down that its time is over."""
        self.timed_out = True
        self._ctx.recorder.copy_log((TOO_LONG,), self._ctx.recorder.cursor() or "")

    def last_words(self) -> str:
        """The last lines that say something."""
        return "\n".join(line.rstrip().rpartition("\r")[2][:LAST_WORDS_CHARS] for line in self._tail)

    def facts(self) -> dict[str, Any]:
        """What is worth keeping of the run."""
        warnings = [self._pattern.given_up] if self._pattern.given_up else []
        return {"timed_out": self.timed_out, "warnings": warnings}


def _ended(ctx: StepContext, watch: _Watch) -> UnitState:
    """The state of the command once it has ended, by itself or because its time is over."""
    while True:
        ctx.recorder.check()
        # The state first: what is in the log after the end was there at the end.
        state = _ours(ctx)
        watch.read()
        watch.look()
        if state.phase != UnitPhase.ACTIVE:
            if state.exit_status != 0:
                watch.read_rest()
            return state
        if watch.timed_out or ctx.recorder.since_launch_s(state.age_s) > _spec(ctx).timeout:
            if not watch.timed_out:
                watch.give_up()
            return ctx.host.stop_unit(ctx.unit)
        ctx.clock.wait(POLL_S)


def _known(ctx: StepContext) -> UnitState:
    state = ctx.host.unit(ctx.unit)
    if state.phase == UnitPhase.UNKNOWN:
        raise StepFailed(Reason.REMOTE_COMMAND_FAILED, f"the state of {ctx.unit} could not be read")
    return state


def _ours(ctx: StepContext) -> UnitState:
    """The state of the invocation that was recorded."""
    state = _known(ctx)
    if state.phase == UnitPhase.NOT_FOUND:
        _raise_if_from_outside(ctx, state)
        raise StepFailed(Reason.COMMAND_FAILED, f"the host has lost every trace of {ctx.unit}; how the command ended is not known")
    if state.invocation_id != ctx.recorder.invocation():
        raise StepFailed(Reason.COMMAND_FAILED, f"{ctx.unit} was started again by somebody else")
    return state


FROM_OUTSIDE = frozenset({Reason.HOST_REBOOTED, Reason.HOST_UNREACHABLE, Reason.PRODUCTION_STARTED_BY_HAND, Reason.HOST_OUT_OF_MEMORY})
"""Endings that are no fault of the command's."""


def _raise_if_from_outside(ctx: StepContext, state: UnitState) -> None:
    reason, how = why_ended(ctx, state)
    if reason in FROM_OUTSIDE:
        raise StepFailed(Reason(reason), how)


def _failure(ctx: StepContext, state: UnitState, watch: _Watch) -> StepFailed | None:
    if watch.timed_out:
        detail = f"the command was ended after {_spec(ctx).timeout:g} s{ending(state)}"
        return StepFailed(Reason.COMMAND_TIMEOUT, detail, watch.last_words())
    if state.exit_status == 0:
        return None
    reason, how = why_ended(ctx, state)
    if reason in FROM_OUTSIDE:
        return StepFailed(Reason(reason), how, watch.last_words())
    if state.exit_status is None and state.signal is None:
        detail = "the command ended, and how is not known: the host was restarted, or what watched over the command was killed"
    else:
        detail = f"the command ended with {f'signal {state.signal}' if state.signal is not None else f'exit status {state.exit_status}'}"
    return StepFailed(Reason.COMMAND_FAILED, detail, watch.last_words())
