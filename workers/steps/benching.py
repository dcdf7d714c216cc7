"""What warm and measure share: where requests go, and what is watched meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from service.domain.engine_spec import VllmEngine
from service.domain.reasons import Reason
from service.domain.server_spec import ServerSpec
from service.domain.spec import Spec
from workers.bench.run import Asked
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


def asked_of(spec: Spec) -> Asked:
    """Whether the experiment's server speculates, as far as its own keys tell."""
    engine = spec.engine
    if not isinstance(engine, VllmEngine | ServerSpec):
        return Asked()
    if engine.speculative is not None:
        return Asked(engine.speculative.method != "none", engine.speculative.num_speculative_tokens)
    if engine.args.get("speculative-config", "") is None:
        return Asked(configured=False)
    # A unit that is forked may have it in its own command line, and there are shorter ways to ask for it.
    elsewhere = isinstance(engine, VllmEngine) and engine.from_unit is not None
    return Asked(None if elsewhere or any("spec" in name or "draft" in name for name in engine.args) else False)


def keep_watch(ctx: StepContext, hear: Callable[[Iterable[str]], None] = lambda _lines: None) -> Callable[[], bool]:
    """For `should_stop`: raises where the recorder has cause to, and copies the engine's log now and then. `hear` is told new lines."""
    copied = ctx.clock.monotonic()

    def look() -> bool:
        nonlocal copied
        ctx.recorder.check()
        if ctx.clock.monotonic() - copied >= LOG_EVERY_S:
            hear(follow_log(ctx))
            copied = ctx.clock.monotonic()
        return False

    return look
