"""The one vocabulary of what happened. Timeline, live pages, messages and audit all read these."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import Field

from service.domain.records import Record


class EventType(StrEnum):
    """Every kind of event that this version writes."""

    EXPERIMENT_SUBMITTED = "experiment.submitted"
    EXPERIMENT_STARTED = "experiment.started"
    EXPERIMENT_STEP = "experiment.step"
    EXPERIMENT_FINISHED = "experiment.finished"
    EXPERIMENT_CANCEL_REQUESTED = "experiment.cancel_requested"
    EXPERIMENT_REQUEUED = "experiment.requeued"
    EXPERIMENT_HELD = "experiment.held"
    EXPERIMENT_RELEASED = "experiment.released"
    EXPERIMENT_MOVED = "experiment.moved"
    LOAD_PROGRESS = "load.progress"
    BENCH_PROGRESS = "bench.progress"
    SHIFT_OPENED = "shift.opened"
    SHIFT_CLOSED = "shift.closed"
    HOST_BLOCKED = "host.blocked"
    HOST_CLEARED = "host.cleared"
    QUEUE_PAUSED = "queue.paused"
    QUEUE_RESUMED = "queue.resumed"
    WORKER_SILENT = "worker.silent"
    WORKER_BACK = "worker.back"


class Event(Record):
    """One fact, past tense. `data` never repeats host or experiment."""

    id: int
    at: datetime
    type: EventType
    actor: str
    """Who: a user, `worker:<owner>`, or `steward`."""
    host: str | None = None
    experiment_id: int | None = None
    data: dict[str, Any] = Field(default_factory=dict)
