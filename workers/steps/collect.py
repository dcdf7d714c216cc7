"""collect: what the numbers stand on, and whether they may be believed."""

from __future__ import annotations

from service.domain.reasons import Reason
from service.domain.status import Outcome
from workers.steps.base import StepContext, StepFailed, follow_log


def provenance(ctx: StepContext) -> None:
    """What the host is, and what its GPUs show at the end."""
    follow_log(ctx)
    reading = ctx.host.gpus()
    gpus = [{"index": gpu.index, "uuid": gpu.uuid, "name": gpu.name, "used_mib": gpu.used_mib} for gpu in reading.gpus]
    ctx.recorder.facts({"host": ctx.host.facts(), "gpus": gpus, "no_gpus": reading.no_gpus, "driver": reading.driver})


def collect(ctx: StepContext) -> None:
    """Provenance of the host and of the run; a run with a failed request is invalid."""
    provenance(ctx)
    failed = ctx.recorder.failed_requests()
    if failed:
        first = failed[0]
        detail = f"{len(failed)} requests failed, the first on prompt {first.prompt}: {first.error_message or first.reason}"
        # The run came to its end, so whatever broke the request, its numbers are there and may not be believed.
        raise StepFailed(first.reason or Reason.BENCH_ERROR, detail, first.error_message or "", outcome=Outcome.INVALID)
