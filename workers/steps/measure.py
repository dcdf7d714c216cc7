"""measure: every level of concurrency that was not measured whole yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from service.domain.measurement import RequestResult
from service.domain.reasons import RULES, Reason
from service.domain.speculation import EngineCounters
from service.domain.status import Outcome
from workers.bench.prompts import resolve
from workers.bench.run import PhaseRun, run_phase_blocking
from workers.bench.target import Target
from workers.steps.base import StepContext, StepFailed, follow_log
from workers.steps.benching import asked_of, bench_target, keep_watch
from workers.steps.collect import provenance
from workers.steps.speculation_log import SpeculationLog

MOST_OUTAGES = 2
"""How often a level is measured again because the host was out of reach meanwhile, or the wire to it stood still."""


def measure(ctx: StepContext) -> None:
    """One bench phase a level. A level cut short before is measured again whole."""
    target = bench_target(ctx)
    counters = ctx.engine.counters(ctx.address)
    spoilt: dict[int, Reason] = {}
    for level in ctx.spec.bench.concurrency:
        if level in ctx.recorder.measured_levels():
            continue
        for again in range(MOST_OUTAGES + 1):
            lost, stalled = ctx.host.outages, ctx.host.stalls
            phase, run = _one_level(ctx, target, counters, level)
            if ctx.host.outages == lost and ctx.host.stalls == stalled:
                break
            ctx.recorder.note(evidence={f"outages@{level}": again + 1})
            if ctx.host.outages == lost and again == MOST_OUTAGES:
                # A look at the host that is slow now and then proves less than one that never came back: kept, and told.
                ctx.recorder.note(evidence={"warnings": [f"the wire to the host stood still in each measurement at concurrency {level}"]})
                break
        else:
            raise StepFailed(Reason.CONNECTION_LOST, f"the host was lost in each of {MOST_OUTAGES + 1} measurements at concurrency {level}")
        ctx.recorder.end_phase(phase, run.result.summary, run.result.speculation)
        ctx.recorder.facts({f"loop_lag_ms_p99@{level}": run.loop_lag_ms_p99})
        summary = run.result.summary
        if not summary.valid and not summary.failed:
            spoilt[level] = summary.invalid_reason or Reason.BENCH_ERROR
    if spoilt:
        _invalid(ctx, spoilt)


def _invalid(ctx: StepContext, spoilt: dict[int, Reason]) -> None:
    """Every request was fine, and yet the figures may not be believed. Failed requests are told of by `collect`."""
    provenance(ctx)
    level, reason = next(iter(spoilt.items()))
    detail = f"the measurement at concurrency {level} does not count: {RULES[reason].sentence}"
    raise StepFailed(reason, detail, outcome=Outcome.INVALID)


def _one_level(ctx: StepContext, target: Target, counters: Callable[[], EngineCounters | None], level: int) -> tuple[int, PhaseRun]:
    """Measure one level; its number in the record stays open, so that what an outage has spoilt can be measured again."""
    ctx.recorder.check()
    ctx.living_unit()
    phase = ctx.recorder.begin_phase("measured", level)
    keep = _Keeper(ctx, phase, level)
    before = ctx.host.gpu_state()
    # What was logged until now speaks of other requests.
    follow_log(ctx)
    log = SpeculationLog()
    run = run_phase_blocking(
        target, ctx.spec.bench, level, counters=counters, asked=asked_of(ctx.spec), on_request=keep, should_stop=keep_watch(ctx, log.hear)
    )
    log.hear(follow_log(ctx))
    run = replace(run, result=run.result.model_copy(update={"speculation": log.instead_of(run.result.speculation)}))
    # The same process must have served all of it, or the numbers belong to two servers.
    ctx.living_unit()
    if before:
        # Two runs at other clocks or temperatures are not to be told apart by their arguments.
        ctx.recorder.facts({f"gpu_state@{level}": {"before": before, "after": ctx.host.gpu_state()}})
    return phase, run


class _Keeper:
    """Keeps each request as it ends and shows how far it is."""

    def __init__(self, ctx: StepContext, phase: int, level: int) -> None:
        self._ctx, self._phase, self._level = ctx, phase, level
        self._total = len(resolve(ctx.spec.bench)) * ctx.spec.bench.repeat
        self._done = 0

    def __call__(self, result: RequestResult) -> None:
        self._ctx.recorder.add_request(self._phase, result)
        self._done += 1
        data = {"concurrency": self._level, "done": self._done, "requests": self._total, "tps": result.tps, "ok": result.ok}
        self._ctx.recorder.progress(data, event="bench")
