"""One experiment: its steps, top to bottom. A step done before is not done again; one cut short is taken up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from service.domain.reasons import Reason
from service.domain.spec import Spec
from service.domain.status import Outcome, StepName
from workers.hosts.base import HostError
from workers.steps.base import Cancelled, Recorder, ShiftOver, StepContext, StepFailed, follow_log
from workers.steps.clear import clear
from workers.steps.collect import collect
from workers.steps.command import clear_for_command, keep_artifacts, launch_command, run_command
from workers.steps.launch import launch
from workers.steps.load import load
from workers.steps.measure import measure
from workers.steps.warm import warm

log = structlog.get_logger()

Step = Callable[[StepContext], None]

Steps = tuple[tuple[StepName, Step], ...]

STEPS: Steps = (
    (StepName.CLEAR, clear),
    (StepName.LAUNCH, launch),
    (StepName.LOAD, load),
    (StepName.WARM, warm),
    (StepName.MEASURE, measure),
    (StepName.COLLECT, collect),
)
"""Of a server that is measured."""

COMMAND_STEPS: Steps = (
    (StepName.CLEAR, clear_for_command),
    (StepName.LAUNCH, launch_command),
    (StepName.MEASURE, run_command),
    (StepName.COLLECT, keep_artifacts),
)
"""Of a command: nothing is loaded or warmed up, and what is measured is how it ends."""


def steps_of(spec: Spec) -> Steps:
    """The steps that an experiment goes through, in order."""
    return COMMAND_STEPS if spec.is_command else STEPS


class RunRecorder(Recorder, Protocol):
    """The Recorder, with what only the runner may call."""

    def begin(self, name: StepName) -> None:
        """Begin a step or take it up again."""

    def end(self) -> None:
        """End the step that was begun."""

    def finished(self, name: StepName) -> bool:
        """Whether a step was done before."""

    def confirm(self) -> None:
        """Raise ClaimLost unless the host is ours at this moment."""


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
    except ShiftOver as over:
        ending = Ending(Outcome.FAILED, over.reason, over.detail)
    except StepFailed as failure:
        ending = Ending(failure.outcome, failure.reason, failure.detail, failure.evidence)
    except HostError as error:
        ending = Ending(Outcome.FAILED, Reason(error.reason), error.evidence, error.evidence)
    return _end_unit(ctx, recorder, ending)


def _steps(ctx: StepContext, recorder: RunRecorder) -> Ending:
    for name, step in steps_of(ctx.spec):
        # The last one is done again: a worker may have died after it, before the ending was written.
        if name != StepName.COLLECT and recorder.finished(name):
            continue
        recorder.begin(name)
        recorder.check()
        structlog.contextvars.bind_contextvars(step=name)
        log.info("step")
        step(ctx)
        recorder.end()
    return Ending(Outcome.SUCCEEDED)


def _end_unit(ctx: StepContext, recorder: RunRecorder, ending: Ending) -> Ending:
    """Stop the engine whatever happened. One that cannot be stopped is the worse news."""
    if not ctx.engine.owns_process:
        return ending
    # A worker that was frozen past its lease may come to this with somebody else at work: then the engine is theirs.
    recorder.confirm()
    try:
        ctx.host.stop_unit(ctx.unit)
        if recorder.invocation() is not None:
            follow_log(ctx)
    except HostError as error:
        return Ending(Outcome.FAILED, Reason(error.reason), error.evidence, error.evidence)
    return ending
