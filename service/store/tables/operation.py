"""Who works, who is the only one of its kind, and how long things took."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index
from sqlmodel import Field, SQLModel

from service.store.columns import time_column, utc_now


class WorkerRow(SQLModel, table=True):
    """A worker process of a host, idle ones too: the trace by which it is known to be there."""

    __tablename__ = "workers"

    host_id: int = Field(foreign_key="hosts.id", primary_key=True)
    owner: str = Field(primary_key=True)
    """As in the lease: machine and pid."""
    version: str = ""
    started_at: datetime = Field(default_factory=utc_now, sa_column=time_column(nullable=False))
    seen: float
    """Its latest heartbeat, seconds since 1970 by the database's clock."""


class SingletonRow(SQLModel, table=True):
    """The lease on something that must have one holder at a time, such as the steward."""

    __tablename__ = "singletons"

    name: str = Field(primary_key=True)
    owner: str | None = None
    token: str | None = None
    expires: float | None = None
    """Seconds since 1970 by the database's clock."""
    fence: int = 0


class DurationRow(SQLModel, table=True):
    """How long one part of an experiment took: what times to come are judged by."""

    __tablename__ = "durations"
    __table_args__ = (
        # One for each way of looking for what is alike, and in it the latest come last.
        Index("ix_durations_engine", "host_id", "part", "bench_hash", "engine_hash", "id"),
        Index("ix_durations_model", "host_id", "part", "bench_hash", "served_model", "id"),
        Index("ix_durations_kind", "host_id", "part", "bench_hash", "engine_kind", "id"),
        Index("ix_durations_experiment", "experiment_id"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, primary_key=True)
    host_id: int = Field(foreign_key="hosts.id")
    experiment_id: int | None = Field(default=None, foreign_key="experiments.id")
    """Null for what a shift does: park, restore."""
    attempt: int = 1
    part: str
    """A step (`clear`, `launch`, `load`, ...), a load phase (`load:weights_loading`), a bench phase (`bench:8`, `bench:warmup`), the
    sums of an attempt's steps before and after the engine serves (`ready`, `bench`), or what a shift does (`park`, `restore`)."""
    seconds: float
    engine_hash: str = ""
    engine_kind: str = ""
    served_model: str = ""
    bench_hash: str = ""
    """Empty for parts that do not depend on it, such as the load."""
    repeat: int | None = None
    """How often the part did its work over (`bench.repeat`, of the warm-up `bench.warmup`): it takes longer in proportion."""
