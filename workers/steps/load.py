"""load: follow the engine's log until our process owns the port, the model is right and one token came back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from service.domain.reasons import Reason
from workers.engines.base import LoadLog, LoadProgress, Readiness
from workers.hosts.base import PortOwner, UnitPhase
from workers.steps.base import StepContext, StepFailed, follow_log, last_telling, why_ended

ENDPOINT_PATIENCE_S = 30.0
"""How long an endpoint, which should serve already, may keep us waiting."""
GPU_LOOK_S = 30.0
"""How often a load that says nothing has its GPU memory looked at, where the limit is not shorter."""
WARN_AT = 0.5
"""A load without a sign of progress is told of after this part of its limit, so that a person may look before it is given up."""
MOVED_MIB = 16
"""Less than this is no sign that weights arrive."""

OUTSIDE = frozenset({Reason.HOST_REBOOTED, Reason.HOST_UNREACHABLE, Reason.PRODUCTION_STARTED_BY_HAND, Reason.HOST_OUT_OF_MEMORY})
"""What ended the engine from outside: its log can only tell what that looked like from within."""

IDLE_TALK = re.compile(
    r"No available shared memory broadcast block found"  # waits for a process that may hang
    r"|Avg prompt throughput: |SpecDecoding metrics: "  # every ten seconds, whatever happens
    r'|"(?:GET|POST) \S+ HTTP/\d(?:\.\d)?" \d{3}'  # an answer to our own question whether it is ready
)
"""What an engine goes on saying while nothing moves."""


@dataclass
class _Watch:
    """When there was last a sign of progress, and what the GPUs showed when they were last asked."""

    since: float
    looked: float
    used_mib: tuple[int | None, ...] | None = None
    told_of: float | None = None
    """The `since` of the standstill that was told of."""


def load(ctx: StepContext) -> None:
    """Until ready, or until it is clear that it will not be."""
    reader = ctx.engine.load_log()
    progress = reader.feed(ctx.recorder.copied_log())
    now = ctx.clock.monotonic()
    watch = _Watch(since=now, looked=now)
    while True:
        ctx.recorder.check()
        progress = _read_log(ctx, reader, progress, watch)
        _still_running(ctx, reader)
        readiness = _probe(ctx)
        if readiness is not None and readiness.ready:
            _remember(ctx, progress, readiness)
            return
        _give_up_where_due(ctx, watch, progress, readiness)
        ctx.clock.wait(ctx.host.poll_s)


def _read_log(ctx: StepContext, reader: LoadLog, before: LoadProgress, watch: _Watch) -> LoadProgress:
    lines = follow_log(ctx)
    if not lines:
        return before
    if any(line.strip() and not IDLE_TALK.search(line) for line in lines):
        watch.since = ctx.clock.monotonic()
    progress = reader.feed(lines)
    if _shown(progress) != _shown(before):
        ctx.recorder.progress(_shown(progress), event="load")
    return progress


def _shown(progress: LoadProgress) -> dict[str, Any]:
    return {"phase": progress.phase, "stage": progress.stage, "done": progress.done, "total": progress.total, "percent": progress.percent}


def _still_running(ctx: StepContext, reader: LoadLog) -> None:
    if not ctx.engine.owns_process:
        return
    state = ctx.observed()
    if state.phase == UnitPhase.ACTIVE:
        return
    progress = reader.feed(follow_log(ctx))
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


def _give_up_where_due(ctx: StepContext, watch: _Watch, progress: LoadProgress, readiness: Readiness | None) -> None:
    now, limits = ctx.clock.monotonic(), ctx.spec.load
    if not ctx.engine.owns_process:
        if now - watch.since > min(ENDPOINT_PATIENCE_S, limits.timeout):
            detail = readiness.detail if readiness else ""
            raise StepFailed(Reason.CONNECTION_REFUSED, f"{ctx.address} did not serve within {ENDPOINT_PATIENCE_S:.0f} s: {detail}", detail)
        return
    where = f"{progress.phase or 'before its first phase'}" + (f" at {progress.percent:.0f} %" if progress.percent is not None else "")
    if ctx.recorder.since_launch_s() > limits.timeout:
        raise StepFailed(Reason.LOAD_TIMEOUT, f"not ready after {limits.timeout:.0f} s, in {where}")
    _look_at_gpus(ctx, watch, now)
    silent_s = now - watch.since
    if silent_s > limits.stall:
        raise StepFailed(Reason.NO_PROGRESS, f"no sign of progress for {limits.stall:.0f} s, in {where}")
    if silent_s > limits.stall * WARN_AT and watch.told_of != watch.since:
        watch.told_of = watch.since
        stalled = {**_shown(progress), "silent_s": round(silent_s, 1), "limit_s": limits.stall, "where": where}
        ctx.recorder.progress(stalled, event="stalled")


def _look_at_gpus(ctx: StepContext, watch: _Watch, now: float) -> None:
    """A silent load that still fills the cards is not stalled. Asked now and then only: the tool is slow on a busy host."""
    every_s = min(GPU_LOOK_S, ctx.spec.load.stall / 4)
    if now - max(watch.since, watch.looked) < every_s:
        return
    watch.looked = now
    reading = ctx.host.gpus()
    if not reading.known:
        return
    used = tuple(gpu.used_mib for gpu in reading.gpus)
    before, watch.used_mib = watch.used_mib, used
    pairs = zip(before or (), used, strict=False)
    if any(old is not None and new is not None and abs(new - old) >= MOVED_MIB for old, new in pairs):
        watch.since = now


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
