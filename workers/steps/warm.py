"""warm: the first request after the load, kept apart, then prompts that are never measured."""

from __future__ import annotations

from service.domain.measurement import RequestResult
from service.domain.reasons import Reason
from workers.bench.run import run_warmup_blocking
from workers.engines.ngram_family import ngram_family, speculative_method
from workers.steps.base import StepContext, StepFailed, follow_log
from workers.steps.benching import bench_target, keep_watch


def warm(ctx: StepContext) -> None:
    """Send the warm-up; a request that fails here ends the experiment before anything is measured."""
    ctx.living_unit()
    remember_family(ctx)
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
    _settled(ctx, result.settled)
    for request in (result.first_request, *result.rest):
        if request is not None and not request.ok:
            ctx.living_unit()
            detail = f"warm-up request {request.prompt} failed: {request.error_message or request.reason}"
            raise StepFailed(request.reason or Reason.BENCH_ERROR, detail, request.error_message or "")


def _settled(ctx: StepContext, settled: bool | None) -> None:
    ctx.recorder.note(evidence={"warmup_settled": settled})
    if settled is False:
        # What it still compiled then lies in the first measured requests.
        ctx.recorder.note(evidence={"warnings": ["the engine still got faster when the warm-up ended; ask for a longer bench.warmup"]})


def remember_family(ctx: StepContext) -> None:
    """Which of vLLM's n-gram proposers runs, by what its log has said while it loaded."""
    if ctx.engine.kind != "vllm":
        return
    follow_log(ctx)
    lines = list(ctx.recorder.copied_log())
    progress = ctx.engine.load_log().feed(lines)
    method = next((found for line in lines if (found := speculative_method(line))), None)
    family = ngram_family(progress.engine_version, progress.facts, method)
    if family is not None:
        ctx.recorder.facts({"ngram_family": family})


def _keep_rest(ctx: StepContext, rest: list[RequestResult]) -> None:
    if not rest:
        return
    phase = ctx.recorder.begin_phase("warmup", 1)
    for request in rest:
        ctx.recorder.add_request(phase, request)
    ctx.recorder.end_phase(phase, None, None)
