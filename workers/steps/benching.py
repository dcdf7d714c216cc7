"""What warm and measure share: where requests go, and what is watched meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from service.domain.reasons import Reason
from workers.bench.target import Target
from workers.steps.base import StepContext, StepFailed, follow_log

LOG_EVERY_S = 2.0


def bench_target(ctx: StepContext) -> Target:
    """Base URL, model and headers. A measurement taken up again asks the server anew which model it serves."""
    readiness = ctx.engine.probe(ctx.address)
    if not readiness.ready:
        # This waits for a host that cannot be reached, and then it is worth asking again.
        ctx.living_unit()
        readiness = ctx.engine.probe(ctx.address)
    if not readiness.ready:
        raise StepFailed(
            readiness.reason or Reason.ENGINE_UNRESPONSIVE, f"{ctx.address} no longer serves: {readiness.detail}", readiness.detail
        )
    return Target(base_url=ctx.engine.api_base(ctx.address), model=ctx.engine.served_model(readiness), headers=ctx.engine.headers())


def keep_watch(ctx: StepContext) -> Callable[[], bool]:
    """For `should_stop`: raises where the recorder has cause to, and copies the engine's log now and then."""
    copied = ctx.clock.monotonic()

    def look() -> bool:
        nonlocal copied
        ctx.recorder.check()
        if ctx.clock.monotonic() - copied >= LOG_EVERY_S:
            follow_log(ctx)
            copied = ctx.clock.monotonic()
        return False

    return look
