"""One experiment: its steps, top to bottom. A step done before is not done again; one cut short is taken up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from service.domain.reasons import Reason
from service.domain.status import Outcome, StepName
from workers.hosts.base import HostError
from workers.steps.base import Cancelled, Recorder, StepContext, StepFailed, follow_log
from workers.steps.clear import clear
from workers.steps.collect import collect
from workers.steps.launch import launch
from workers.steps.load import load
from workers.steps.measure import measure
from workers.steps.warm import warm

log = structlog.get_logger()

Step = Callable[[StepContext], None]

STEPS: tuple[tuple[StepName, Step], ...] = (
    (StepName.CLEAR, clear),
    (StepName.LAUNCH, launch),
    (StepName.LOAD, load),
    (StepName.WARM, warm),
    (StepName.MEASURE, measure),
    (StepName.COLLECT, collect),
)


class RunRecorder(Recorder, Protocol):
    """The Recorder, with what only the runner may call."""

    def begin(self, name: StepName) -> None:
        """Begin a step or take it up again."""

    def end(self) -> None:
        """End the step that was begun."""

    def finished(self, name: StepName) -> bool:
        """Whether a step was done before."""


@dataclass(frozen=True)
class Ending:
    """How an attempt ended."""

    outcome: Outcome
    reason: Reason | None = None
    detail: str = ""
    evidence: str = ""


def run(ctx: StepContext, recorder: RunRecorder) -> Ending:
    """Run an experiment to its end and leave no process of it behind.

    HandOver and ClaimLost pass through: then the unit keeps running for whoever goes on.
    """
    try:
        ending = _steps(ctx, recorder)
    except Cancelled:
        ending = Ending(Outcome.CANCELLED, Reason.CANCELLED_BY_USER)
    except StepFailed as failure:
        ending = Ending(failure.outcome, failure.reason, failure.detail, failure.evidence)
    except HostError as error:
        ending = Ending(Outcome.FAILED, Reason(error.reason), error.evidence, error.evidence)
    return _end_unit(ctx, ending)


def _steps(ctx: StepContext, recorder: RunRecorder) -> Ending:
    for name, step in STEPS:
        if recorder.finished(name):
            continue
        recorder.begin(name)
        recorder.check()
        log.info("step", experiment=ctx.experiment_id, step=name)
        step(ctx)
        recorder.end()
    return Ending(Outcome.SUCCEEDED)


def _end_unit(ctx: StepContext, ending: Ending) -> Ending:
    """Stop the engine whatever happened. One that cannot be stopped is the worse news."""
    if not ctx.engine.owns_process:
        return ending
    try:
        ctx.host.stop_unit(ctx.unit)
        follow_log(ctx)
    except HostError as error:
        return Ending(Outcome.FAILED, Reason(error.reason), error.evidence, error.evidence)
    return ending
