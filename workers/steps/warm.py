"""warm: the first request after the load, kept apart, then prompts that are never measured."""

from __future__ import annotations

from service.domain.measurement import RequestResult
from service.domain.reasons import Reason
from workers.bench.run import run_warmup_blocking
from workers.steps.base import StepContext, StepFailed
from workers.steps.benching import bench_target, keep_watch


def warm(ctx: StepContext) -> None:
    """Send the warm-up; a request that fails here ends the experiment before anything is measured."""
    ctx.living_unit()
    if ctx.spec.bench.warmup == 0:
        ctx.recorder.note(evidence={"warmup": "none asked for"})
        return
    target = bench_target(ctx)
    first_phase = ctx.recorder.begin_phase("first_request", 1)
    result = run_warmup_blocking(target, ctx.spec.bench, should_stop=keep_watch(ctx))
    if result.first_request is not None:
        ctx.recorder.add_request(first_phase, result.first_request)
    ctx.recorder.end_phase(first_phase, None, None)
    _keep_rest(ctx, result.rest)
    for request in (result.first_request, *result.rest):
        if request is not None and not request.ok:
            ctx.living_unit()
            detail = f"warm-up request {request.prompt} failed: {request.error_message or request.reason}"
            raise StepFailed(request.reason or Reason.BENCH_ERROR, detail, request.error_message or "")


def _keep_rest(ctx: StepContext, rest: list[RequestResult]) -> None:
    if not rest:
        return
    phase = ctx.recorder.begin_phase("warmup", 1)
    for request in rest:
        ctx.recorder.add_request(phase, request)
    ctx.recorder.end_phase(phase, None, None)
