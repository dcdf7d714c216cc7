"""The steps of an experiment as a strip: what is done and how long it took, where it is, what is to come."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal, NamedTuple

from service.api.schemas import ExperimentDetail
from service.domain.clock import span
from service.domain.status import Status, StepName

State = Literal["done", "now", "failed", "later"]
SIGNS: dict[State, tuple[str, str]] = {"done": ("✓", "done"), "now": ("●", "now"), "failed": ("✗", "ended here"), "later": ("○", "to come")}
NOT_OF_COMMANDS = frozenset({StepName.LOAD, StepName.WARM})


class Part(NamedTuple):
    """One step."""

    name: str
    state: State
    took: str
    """Empty before it began."""

    @property
    def sign(self) -> str:
        """For eyes."""
        return SIGNS[self.state][0]

    @property
    def word(self) -> str:
        """For those who cannot see the sign."""
        return SIGNS[self.state][1]


def strip(item: ExperimentDetail) -> list[Part]:
    """Every step of the present attempt, in order."""
    begun = {step.name: step for step in item.steps if step.attempt == item.attempt}
    command = item.spec["engine"]["kind"] == "command"
    parts = []
    for name in StepName:
        if command and name in NOT_OF_COMMANDS:
            continue
        step = begun.get(name)
        if step is None:
            parts.append(Part(name, "later", ""))
            continue
        end = step.finished_at or (item.finished_at or datetime.now(UTC))
        state: State = "done" if step.finished_at else "failed" if item.status == Status.FINISHED else "now"
        parts.append(Part(name, state, span((end - step.started_at).total_seconds())))
    return parts
