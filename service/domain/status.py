"""Few statuses, and the table of allowed moves between them."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """Where an experiment is."""

    HELD = "held"  # waits for a person
    QUEUED = "queued"  # waits for its host
    RUNNING = "running"  # a worker is at it, or will adopt it
    STOPPING = "stopping"  # asked to stop; its engine is being ended
    FINISHED = "finished"  # has an outcome and, unless it succeeded, a reason


class Outcome(StrEnum):
    """How a finished experiment ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INVALID = "invalid"  # it ended, but its numbers may not be believed


class StepName(StrEnum):
    """The steps of an experiment, in order."""

    CLEAR = "clear"
    LAUNCH = "launch"
    LOAD = "load"
    WARM = "warm"
    MEASURE = "measure"
    COLLECT = "collect"


class ShiftPhase(StrEnum):
    """What a shift has done to production. One that is found in any but closed is taken up there."""

    OPEN = "open"  # production serves
    PARKING = "parking"
    PARKED = "parked"
    RESTORING = "restoring"
    CLOSED = "closed"  # production is back, and proven to serve


ACTIVE: frozenset[Status] = frozenset({Status.RUNNING, Status.STOPPING})
"""At most one experiment a host may be in one of these."""

MOVES: dict[Status, frozenset[Status]] = {
    Status.HELD: frozenset({Status.QUEUED, Status.FINISHED}),
    Status.QUEUED: frozenset({Status.HELD, Status.RUNNING, Status.FINISHED}),
    Status.RUNNING: frozenset({Status.STOPPING, Status.FINISHED, Status.QUEUED}),
    Status.STOPPING: frozenset({Status.FINISHED, Status.QUEUED}),
    Status.FINISHED: frozenset(),
}
"""Every allowed move. A retry is a new attempt in a new row, so nothing leaves `finished`."""
