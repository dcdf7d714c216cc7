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
    LOAD_STALLED = "load.stalled"
    BENCH_PROGRESS = "bench.progress"
    SHIFT_OPENED = "shift.opened"
    SHIFT_CLOSED = "shift.closed"
    SHIFT_TRIPPED = "shift.tripped"
    PRODUCTION_PARKED = "production.parked"
    PRODUCTION_RESTORED = "production.restored"
    PRODUCTION_NOT_RESTORED = "production.not_restored"
    HOST_ADDED = "host.added"
    HOST_CHANGED = "host.changed"
    HOST_OPENING_ALLOWED = "host.opening_allowed"
    HOST_OPENING_WITHDRAWN = "host.opening_withdrawn"
    HOST_GIVE_BACK_REQUESTED = "host.give_back_requested"
    HOST_ASKED = "host.asked"
    HOST_ANSWERED = "host.answered"
    HOST_UNREACHABLE = "host.unreachable"
    HOST_RECOVERED = "host.recovered"
    HOST_BLOCKED = "host.blocked"
    HOST_CLEARED = "host.cleared"
    QUEUE_PAUSED = "queue.paused"
    QUEUE_RESUMED = "queue.resumed"
    QUEUE_DRAINED = "queue.drained"
    WORKER_SILENT = "worker.silent"
    WORKER_BACK = "worker.back"
    DELIVERY_FAILED = "delivery.failed"
    DELIVERY_REPLAYED = "delivery.replayed"
    NOTIFIER_ADDED = "notifier.added"
    NOTIFIER_CHANGED = "notifier.changed"
    NOTIFIER_REMOVED = "notifier.removed"
    NOTIFIER_DISABLED = "notifier.disabled"
    BASELINE_PINNED = "baseline.pinned"
    BASELINE_UNPINNED = "baseline.unpinned"
    LOGS_PRUNED = "logs.pruned"
    TOKEN_CREATED = "token.created"  # noqa: S105 - a name
    TOKEN_REVOKED = "token.revoked"  # noqa: S105 - a name


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
