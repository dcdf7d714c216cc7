"""load: follow the engine's log until our process owns the port, the model is right and one token came back."""

from __future__ import annotations

from typing import Any

from service.domain.reasons import Reason
from workers.engines.base import LoadLog, LoadProgress, Readiness
from workers.hosts.base import PortOwner, UnitPhase, UnitState
from workers.steps.base import StepContext, StepFailed, follow_log, last_telling, rest_of_log, why_ended
from workers.steps.signs import Signs, told

ENDPOINT_PATIENCE_S = 30.0
"""How long an endpoint, which should serve already, may keep us waiting."""
OUTSIDE = frozenset({Reason.HOST_REBOOTED, Reason.HOST_UNREACHABLE, Reason.PRODUCTION_STARTED_BY_HAND, Reason.HOST_OUT_OF_MEMORY})
"""What ended the engine from outside: its log can only tell what that looked like from within."""


def load(ctx: StepContext) -> None:
    """Until ready, or until it is clear that it will not be."""
    reader = ctx.engine.load_log()
    progress = reader.feed(ctx.recorder.copied_log())
    signs = Signs(ctx, progress.phase)
    while True:
        ctx.recorder.check()
        progress = _read_log(ctx, reader, progress, signs)
        state = _still_running(ctx, reader)
        signs.see(None if state is None else state.used)
        readiness = _probe(ctx)
        if readiness is not None and readiness.ready:
            _remember(ctx, progress, readiness)
            return
        _give_up_where_due(ctx, signs, progress, readiness, None if state is None else state.age_s)
        ctx.clock.wait(ctx.host.poll_s)


def _read_log(ctx: StepContext, reader: LoadLog, before: LoadProgress, signs: Signs) -> LoadProgress:
    lines = follow_log(ctx)
    if not lines:
        return before
    progress = reader.feed(lines)
    moved = _shown(progress) != _shown(before)
    signs.hear(lines, moved=moved, phase=progress.phase)
    if moved:
        ctx.recorder.progress(_shown(progress), event="load")
    return progress


def _shown(progress: LoadProgress) -> dict[str, Any]:
    return {"phase": progress.phase, "stage": progress.stage, "done": progress.done, "total": progress.total, "percent": progress.percent}


def _still_running(ctx: StepContext, reader: LoadLog) -> UnitState | None:
    """The unit as it lives; StepFailed where it runs no more. None for an endpoint."""
    if not ctx.engine.owns_process:
        return None
    state = ctx.observed()
    if state.phase == UnitPhase.ACTIVE:
        return state
    progress = reader.feed(rest_of_log(ctx))
    last = last_telling(list(ctx.recorder.copied_log()))
    known, how = why_ended(ctx, state)
    reason = known if known in OUTSIDE else progress.reason or known or Reason.ENGINE_DEAD
    raise StepFailed(reason, f"{how} while loading", progress.evidence or last)


def _probe(ctx: StepContext) -> Readiness | None:
    """None while nobody listens. A listener that is not our process is never asked."""
    if ctx.engine.owns_process:
        owner = ctx.host.port_owner(ctx.port)
        if owner is None:
            return None
        _ours_alone(ctx, owner)
    readiness = ctx.engine.probe(ctx.address)
    if readiness.reason is not None:
        raise StepFailed(readiness.reason, readiness.detail, readiness.detail)
    return readiness


def _ours_alone(ctx: StepContext, owner: PortOwner) -> None:
    who = f"pid {owner.pid} ({owner.command})" if owner.pid else "a process of another user"
    if owner.shared:
        # Each connection goes to one or the other, so nothing that is measured here could be believed.
        raise StepFailed(Reason.PORT_SHARED_WITH_ANOTHER_SERVER, f"port {ctx.port} is shared with {who}", who)
    if owner.unit != ctx.unit:
        raise StepFailed(Reason.WRONG_SERVER_ON_PORT, f"port {ctx.port} is owned by {who}, not by {ctx.unit}", who)


def _give_up_where_due(ctx: StepContext, signs: Signs, progress: LoadProgress, readiness: Readiness | None, ran_s: float | None) -> None:
    limits = ctx.spec.load
    if not ctx.engine.owns_process:
        if signs.silent_s > min(ENDPOINT_PATIENCE_S, limits.timeout):
            detail = readiness.detail if readiness else ""
            raise StepFailed(Reason.CONNECTION_REFUSED, f"{ctx.address} did not serve within {ENDPOINT_PATIENCE_S:.0f} s: {detail}", detail)
        return
    where = f"{progress.phase or 'before its first phase'}" + (f" at {progress.percent:.0f} %" if progress.percent is not None else "")
    if ctx.recorder.since_launch_s(ran_s) > limits.timeout:
        raise StepFailed(Reason.LOAD_TIMEOUT, f"not ready after {limits.timeout:.0f} s, in {where}")
    signs.look()
    limit_s = signs.limit_s()
    if signs.silent_s > limit_s:
        looked = "; ".join(f"{what}: {found}" for what, found in signs.looked_at().items())
        raise StepFailed(Reason.NO_PROGRESS, f"no sign of progress for {limit_s:.0f} s, in {where}; looked at {looked}", signs.last_words)
    if signs.to_tell_of():
        ctx.recorder.progress({**_shown(progress), "where": where, **told(signs, limit_s)}, event="stalled")


def _remember(ctx: StepContext, progress: LoadProgress, readiness: Readiness) -> None:
    ctx.recorder.note(evidence={"ready": readiness.detail, "models": list(readiness.models), "token": readiness.token})
    ctx.recorder.facts(
        {
            "engine": ctx.engine.kind,
            "engine_version": readiness.engine_version or progress.engine_version,
            "served_model": ctx.engine.served_model(readiness),
            "load": progress.facts,
            "load_warnings": list(progress.warnings),
        }
    )
