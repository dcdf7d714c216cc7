"""The look before the start: what can only fail is not started."""

from __future__ import annotations

from service.domain.reasons import Reason
from workers.steps.base import StepContext, StepFailed


def look_before(ctx: StepContext) -> None:
    """Note what the look finds; StepFailed where it finds that the experiment could only fail. Nothing was touched by then."""
    if ctx.preflight is None or ctx.recorder.invocation() is not None:
        return
    ctx.recorder.check()
    report = ctx.preflight()
    ctx.recorder.note(evidence={"preflight": report.as_json()})
    if report.refusal is not None:
        raise StepFailed(report.refusal.reason or Reason.BAD_ARGUMENTS, report.detail, report.refusal.evidence)
