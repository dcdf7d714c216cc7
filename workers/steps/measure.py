"""measure: every level of concurrency that was not measured whole yet."""

from __future__ import annotations

from service.domain.measurement import RequestResult
from workers.bench.prompts import resolve
from workers.bench.run import run_phase_blocking
from workers.steps.base import StepContext
from workers.steps.benching import bench_target, keep_watch


def measure(ctx: StepContext) -> None:
    """One bench phase a level. A level cut short before is measured again whole."""
    target = bench_target(ctx)
    counters = ctx.engine.counters(ctx.address)
    for level in ctx.spec.bench.concurrency:
        if level in ctx.recorder.measured_levels():
            continue
        ctx.recorder.check()
        ctx.living_unit()
        phase = ctx.recorder.begin_phase("measured", level)
        keep = _Keeper(ctx, phase, level)
        run = run_phase_blocking(target, ctx.spec.bench, level, counters=counters, on_request=keep, should_stop=keep_watch(ctx))
        # The same process must have served all of it, or the numbers belong to two servers.
        ctx.living_unit()
        ctx.recorder.end_phase(phase, run.result.summary, run.result.speculation)
        ctx.recorder.facts({f"loop_lag_ms_p99@{level}": run.loop_lag_ms_p99})


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
