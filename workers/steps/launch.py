"""launch: have the unit running, started now or found running, and know which invocation it is."""

from __future__ import annotations

from collections.abc import Sequence

from service.domain.reasons import Reason
from workers.hosts.base import Fork, HostError, UnitDefinition, UnitPhase, UnitState
from workers.steps.base import StepContext, StepFailed

KEY, HIDDEN = "--api-key", "***"


def launch(ctx: StepContext) -> None:
    """Start the unit, unless it already runs as ours."""
    wanted = ctx.engine.launch()
    if wanted is None:
        ctx.recorder.note(evidence={"launched": "nothing: the endpoint serves already"})
        return
    from_unit = getattr(ctx.spec.engine, "from_unit", None)
    definition = UnitDefinition(
        name=ctx.unit,
        argv=wanted.argv,
        env=wanted.env,
        cwd=wanted.cwd,
        user=wanted.user or (None if from_unit else ctx.run_as),
        fork=None if wanted.fork is None else Fork(str(from_unit), wanted.fork),
        conflicts=ctx.production,
    )
    state = _as_recorded(ctx) or _start(ctx, definition)
    ctx.recorder.note(
        unit=ctx.unit,
        invocation_id=state.invocation_id,
        evidence={
            "argv": without_keys(wanted.argv),
            "pid": state.main_pid,
            "port": wanted.port,
            "seen_argv": without_keys(state.argv),
            "boot_id": state.boot_id,
            "from_unit": from_unit,
            "changes": [list(change) for change in wanted.changes],
            "warnings": list(wanted.warnings),
        },
    )


def _as_recorded(ctx: StepContext) -> UnitState | None:
    """The unit whose start was recorded before; None where there was none, or where the host has lost every trace of it."""
    state = ctx.host.unit(ctx.unit)
    if state.phase == UnitPhase.UNKNOWN:
        raise StepFailed(Reason.REMOTE_COMMAND_FAILED, f"the state of {ctx.unit} could not be read")
    recorded = ctx.recorder.invocation()
    if recorded is None or state.phase == UnitPhase.NOT_FOUND:
        return None
    if state.invocation_id != recorded:
        raise StepFailed(Reason.SERVER_RESTARTED_DURING_RUN, f"{ctx.unit} was started again by somebody else")
    # An ended unit whose start is recorded has had its chance: the load step reads from its log why it ended.
    return state


def _start(ctx: StepContext, definition: UnitDefinition) -> UnitState:
    """Start it; the host adopts one that runs already with the same definition, and refuses one that has another."""
    ctx.recorder.check()
    try:
        return ctx.host.start_unit(definition)
    except HostError as error:
        raise StepFailed(Reason(error.reason), error.evidence, error.evidence) from error


def without_keys(argv: Sequence[str]) -> list[str]:
    """A command line as it may be shown: an existing unit that is forked may have its API key there."""
    shown: list[str] = []
    for word in argv:
        name, equals, _ = word.partition("=")
        if shown and shown[-1] == KEY:
            shown.append(HIDDEN)
        else:
            shown.append(f"{KEY}={HIDDEN}" if name == KEY and equals else word)
    return shown
