"""The tables. Invariants live here, where no code can forget them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, Boolean, CheckConstraint, Column, Float, Index, MetaData, Text, UniqueConstraint, false, text
from sqlmodel import Field, SQLModel

from service.store.columns import json_column, time_column

metadata: MetaData = SQLModel.metadata


def utc_now() -> datetime:
    """Now, aware."""
    return datetime.now(UTC)


class HostRow(SQLModel, table=True):
    """A host, and the one lease on it."""

    __tablename__ = "hosts"
    __table_args__ = (UniqueConstraint("name"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True)
    name: str
    transport: str = "local"
    config: dict[str, Any] = Field(default_factory=dict, sa_column=json_column())
    created_at: datetime = Field(default_factory=utc_now, sa_column=time_column(nullable=False))
    blocked: str | None = Field(default=None, sa_column=Column(Text))
    """Why nothing may start here, in words; null when free."""
    lease_owner: str | None = None
    lease_token: str | None = None
    lease_expires: float | None = None
    """Seconds since 1970 by the database's clock."""
    fence: int = 0
    """Grows with every claim; a writer with an older one has lost the host."""
    worker_silent: bool = False
    paused: bool = Field(default=False, sa_column=Column(Boolean, nullable=False, server_default=false()))
    """Nothing new starts; what runs is finished."""
    open_by: str | None = None
    """Who allowed one shift outside the window; used up when that shift closes."""
    give_back_by: str | None = None
    """Who wants production back at once; cleared when the shift has closed."""
    unreachable_since: datetime | None = Field(default=None, sa_column=time_column())
    report: dict[str, Any] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False, server_default="{}"))
    """What the latest check found, and when."""


class ShiftRow(SQLModel, table=True):
    """One stretch of work on a host."""

    __tablename__ = "shifts"
    __table_args__ = (
        Index(
            "uq_shifts_open_host",
            "host_id",
            unique=True,
            sqlite_where=text("closed_at IS NULL"),
            postgresql_where=text("closed_at IS NULL"),
        ),
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, primary_key=True)
    host_id: int = Field(foreign_key="hosts.id")
    opened_at: datetime = Field(default_factory=utc_now, sa_column=time_column(nullable=False))
    closed_at: datetime | None = Field(default=None, sa_column=time_column())
    closing: str | None = None
    """Why it ends; set when that is decided, which is before production is back."""
    phase: str = Field(default="open", sa_column=Column(Text, nullable=False, server_default="open"))
    """open: production serves; parking, parked, restoring; closed. A shift that is found in any but closed is taken up there."""
    parked: dict[str, Any] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False, server_default="{}"))
    """What was serving, what proves that it serves, and what became of it."""
    failures: list[str] = Field(default_factory=list, sa_column=Column(JSON, nullable=False, server_default="[]"))
    """Engine hashes of the failures in a row that count for a trip."""
    idle_since: datetime | None = Field(default=None, sa_column=time_column())


class ExperimentRow(SQLModel, table=True):
    """One experiment and where it is."""

    __tablename__ = "experiments"
    __table_args__ = (
        # Two active experiments on one host are impossible, whatever the code does.
        Index(
            "uq_experiments_active_host",
            "host_id",
            unique=True,
            sqlite_where=text("status IN ('running', 'stopping')"),
            postgresql_where=text("status IN ('running', 'stopping')"),
        ),
        Index("ix_experiments_queue", "host_id", "status", "priority", "id"),
        CheckConstraint("status IN ('held', 'queued', 'running', 'stopping', 'finished')", name="status"),
        CheckConstraint("(status = 'finished') = (outcome IS NOT NULL)", name="outcome_when_finished"),
        CheckConstraint("(status = 'finished') = (finished_at IS NOT NULL)", name="time_when_finished"),
        CheckConstraint("outcome IS NULL OR outcome = 'succeeded' OR reason IS NOT NULL", name="reason_unless_succeeded"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, primary_key=True)
    group_id: str | None = None
    name: str = Field(index=True)
    host_id: int = Field(foreign_key="hosts.id")
    created_by: str
    status: str = "queued"
    step: str | None = None
    outcome: str | None = None
    reason: str | None = None
    detail: str = Field(default="", sa_column=Column(Text, nullable=False))
    """The sentence behind the reason: figures, names."""
    evidence: str = Field(default="", sa_column=Column(Text, nullable=False))
    """The line a person would point at."""
    spec: dict[str, Any] = Field(default_factory=dict, sa_column=json_column())
    spec_hash: str = Field(index=True)
    engine_hash: str
    bench_hash: str
    served_model: str = ""
    priority: int = 0
    rank: float = Field(default=0.0, sa_column=Column(Float, nullable=False, server_default="0"))
    """Place among those of the same priority; grows with the id unless somebody moved it."""
    not_before: datetime | None = Field(default=None, sa_column=time_column())
    held_because: str | None = Field(default=None, sa_column=Column(Text))
    retry_of: int | None = None
    """The experiment that this one tries again."""
    baseline_id: int | None = Field(default=None, foreign_key="experiments.id")
    created_at: datetime = Field(default_factory=utc_now, sa_column=time_column(nullable=False))
    started_at: datetime | None = Field(default=None, sa_column=time_column())
    finished_at: datetime | None = Field(default=None, sa_column=time_column())
    attempt: int = 1
    shift_id: int | None = Field(default=None, foreign_key="shifts.id")
    fence: int | None = None
    """The fence of the claim that works on it."""
    recoveries: int = 0
    """How often another worker took it over."""
    progress: dict[str, Any] = Field(default_factory=dict, sa_column=json_column())
    """Latest load or bench progress, for whoever looks."""
    facts: dict[str, Any] = Field(default_factory=dict, sa_column=json_column())
    """Provenance: versions, argv, GPUs, client lag."""


class HostRequestRow(SQLModel, table=True):
    """What somebody wants done on a host: the host's worker does it, and writes down the answer."""

    __tablename__ = "host_requests"
    __table_args__ = (
        Index("ix_host_requests_waiting", "host_id", "status", "id"),
        CheckConstraint("status IN ('queued', 'running', 'finished')", name="status"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, primary_key=True)
    host_id: int = Field(foreign_key="hosts.id")
    kind: str
    """check, trust, install, rehearse."""
    args: dict[str, Any] = Field(default_factory=dict, sa_column=json_column())
    status: str = "queued"
    ok: bool | None = None
    answer: dict[str, Any] = Field(default_factory=dict, sa_column=json_column())
    created_by: str
    created_at: datetime = Field(default_factory=utc_now, sa_column=time_column(nullable=False))
    started_at: datetime | None = Field(default=None, sa_column=time_column())
    finished_at: datetime | None = Field(default=None, sa_column=time_column())
    fence: int | None = None


class InstallationRow(SQLModel, table=True):
    """One row: which installation this database is, so that two of them on one host can be told apart."""

    __tablename__ = "installation"

    id: int | None = Field(default=None, primary_key=True)
    service_id: str


class DependencyRow(SQLModel, table=True):
    """One experiment waits for the success of another."""

    __tablename__ = "dependencies"
    __table_args__ = (Index("ix_dependencies_after", "after_id"),)

    experiment_id: int = Field(foreign_key="experiments.id", primary_key=True)
    after_id: int = Field(foreign_key="experiments.id", primary_key=True)


class BaselineRow(SQLModel, table=True):
    """The pinned baseline of a model on a host."""

    __tablename__ = "baselines"

    host_id: int = Field(foreign_key="hosts.id", primary_key=True)
    served_model: str = Field(primary_key=True)
    experiment_id: int = Field(foreign_key="experiments.id")


class IdempotencyRow(SQLModel, table=True):
    """The first answer to a submission, given again to the same one."""

    __tablename__ = "idempotency_keys"

    key: str = Field(primary_key=True)
    body_hash: str
    created_at: datetime = Field(default_factory=utc_now, sa_column=time_column(nullable=False))
    status: int | None = None
    """Null while the first request is still being answered."""
    answer: Any = Field(default=None, sa_column=Column(JSON))


class StepRow(SQLModel, table=True):
    """One step of one attempt: what was found and done, so that another worker can go on from here."""

    __tablename__ = "steps"
    __table_args__ = (UniqueConstraint("experiment_id", "attempt", "name"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True)
    experiment_id: int = Field(foreign_key="experiments.id")
    attempt: int
    name: str
    started_at: datetime = Field(default_factory=utc_now, sa_column=time_column(nullable=False))
    finished_at: datetime | None = Field(default=None, sa_column=time_column())
    unit: str | None = None
    invocation_id: str | None = None
    cursor: str | None = None
    evidence: dict[str, Any] = Field(default_factory=dict, sa_column=json_column())


class BenchPhaseRow(SQLModel, table=True):
    """One bench phase: a concurrency level, the warm-up, or the first request after the load."""

    __tablename__ = "bench_phases"
    __table_args__ = (
        Index("ix_bench_phases_experiment", "experiment_id", "id"),
        CheckConstraint("kind IN ('first_request', 'warmup', 'measured')", name="kind"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, primary_key=True)
    experiment_id: int = Field(foreign_key="experiments.id")
    attempt: int
    load: int = 1
    """Which load of this configuration."""
    kind: str
    concurrency: int
    started_at: datetime = Field(default_factory=utc_now, sa_column=time_column(nullable=False))
    finished_at: datetime | None = Field(default=None, sa_column=time_column())
    superseded: bool = False
    """Cut before it ended; its rows stay but count for nothing."""
    summary: dict[str, Any] = Field(default_factory=dict, sa_column=json_column())


class RequestRow(SQLModel, table=True):
    """One request of a bench phase; columns as in `RequestResult`."""

    __tablename__ = "requests"
    __table_args__ = (Index("ix_requests_phase", "bench_phase_id", "id"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True)
    bench_phase_id: int = Field(foreign_key="bench_phases.id")
    prompt: str
    repeat: int
    ok: bool
    reason: str | None = None
    http_status: int | None = None
    finish_reason: str | None = None
    ttft_s: float | None = None
    ttfa_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    tokens_from: str | None = None
    estimated_tokens: int | None = None
    tps: float | None = None
    itl_ms: list[float] = Field(default_factory=list, sa_column=json_column())
    text: str = Field(default="", sa_column=Column(Text, nullable=False))
    reasoning_text: str = Field(default="", sa_column=Column(Text, nullable=False))
    tool_calls: list[dict[str, Any]] = Field(default_factory=list, sa_column=json_column())
    error_code: int | None = None
    error_message: str | None = Field(default=None, sa_column=Column(Text))
    warnings: list[str] = Field(default_factory=list, sa_column=json_column())


class SpeculationRow(SQLModel, table=True):
    """What speculation did over a bench phase, or over one request of it."""

    __tablename__ = "speculation"
    __table_args__ = (Index("ix_speculation_phase", "bench_phase_id"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True)
    bench_phase_id: int = Field(foreign_key="bench_phases.id")
    request_id: int | None = Field(default=None, foreign_key="requests.id")
    status: str
    source: str | None = None
    drafts: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    mean_acceptance_length: float | None = None
    draft_acceptance_rate: float | None = None
    per_position_acceptance: list[float] | None = Field(default=None, sa_column=Column(JSON))
    effective_tokens_per_step: float | None = None
    draft_coverage: float | None = None
    per_engine: dict[str, Any] = Field(default_factory=dict, sa_column=json_column())
    comparable: bool = True
    warnings: list[str] = Field(default_factory=list, sa_column=json_column())


class EventRow(SQLModel, table=True):
    """What happened, in the order it happened."""

    __tablename__ = "events"
    __table_args__ = (Index("ix_events_experiment", "experiment_id", "id"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True)
    at: datetime = Field(default_factory=utc_now, sa_column=time_column(nullable=False))
    type: str
    actor: str
    host: str | None = None
    experiment_id: int | None = Field(default=None, foreign_key="experiments.id")
    data: dict[str, Any] = Field(default_factory=dict, sa_column=json_column())


class LogRow(SQLModel, table=True):
    """A bounded piece of an engine's log, copied as it was read."""

    __tablename__ = "log_chunks"
    __table_args__ = (Index("ix_log_chunks_experiment", "experiment_id", "id"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True)
    experiment_id: int = Field(foreign_key="experiments.id")
    attempt: int
    step: str
    at: datetime = Field(default_factory=utc_now, sa_column=time_column(nullable=False))
    text: str = Field(sa_column=Column(Text, nullable=False))
