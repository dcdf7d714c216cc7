"""A cause that some part of the evidence names, and how much weight it has against the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from service.domain.reasons import Reason
from workers.engines.rules import Rank


class Weight(IntEnum):
    """The lower one wins; among equals the first."""

    DEFINITION = 0  # the unit itself is wrong: whatever the engine says is a consequence
    OUTSIDE = 5  # the kernel or the machine
    ROOT = 10  # the engine names what has to change
    SERVICE_MANAGER = 15  # systemd says what it did itself
    CONSEQUENCE = 20
    GENERIC = 30
    WRAPPER = 40
    LOOP = 43  # it ends again and again
    ENDING = 45  # only how it ended: a status, a signal
    HINT = 60  # worth a look where nothing else is known


OF_RANK = {Rank.ROOT: Weight.ROOT, Rank.CONSEQUENCE: Weight.CONSEQUENCE, Rank.GENERIC: Weight.GENERIC, Rank.WRAPPER: Weight.WRAPPER}


@dataclass(frozen=True)
class Cause:
    """Why, the line that says so, and the figures that go with it."""

    reason: Reason
    weight: Weight
    evidence: str = ""
    component: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def likeliest(causes: Iterable[Cause]) -> Cause | None:
    """The one with the most weight."""
    return min(causes, key=lambda cause: cause.weight, default=None)
