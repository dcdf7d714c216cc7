"""An experiment, its steps and log, what it waits for, and what happened."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, CheckConstraint, Column, Float, Index, Integer, Text, UniqueConstraint, text
from sqlmodel import Field, SQLModel

from service.store.columns import json_column, time_column, utc_now


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
        # All that the metrics count, so that they need not look at the rows.
        Index("ix_experiments_figures", "host_id", "status", "outcome", "reason", "engine_kind"),
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
    engine_kind: str = Field(default="", sa_column=Column(Text, nullable=False, server_default=""))
    """As in the spec, where counting would have to read all of it."""
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
    load: int = Field(default=1, sa_column=Column(Integer, nullable=False, server_default="1"))
    """Which load of its configuration, of as many as the spec's `repeat_load`."""
    load_of: int | None = Field(default=None, index=True)
    """The first load of the same configuration in the same submission; null for that one itself."""
    recheck_of: int | None = Field(default=None, index=True)
    """The baseline whose configuration is loaded once more here, after the candidates that this one waits for."""
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


class EventRow(SQLModel, table=True):
    """What happened, in the order it happened."""

    __tablename__ = "events"
    __table_args__ = (
        Index("ix_events_experiment", "experiment_id", "id"),
        Index("ix_events_type", "type", "id"),
        {"sqlite_autoincrement": True},
    )

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
