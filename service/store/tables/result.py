"""What was measured."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, CheckConstraint, Column, Index, Text
from sqlmodel import Field, SQLModel

from service.store.columns import TokenIds, json_column, time_column, utc_now


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
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    tokens_from: str | None = None
    estimated_tokens: int | None = None
    tps: float | None = None
    itl_ms: list[float] = Field(default_factory=list, sa_column=json_column())
    text: str = Field(default="", sa_column=Column(Text, nullable=False))
    reasoning_text: str = Field(default="", sa_column=Column(Text, nullable=False))
    tool_calls: list[dict[str, Any]] = Field(default_factory=list, sa_column=json_column())
    prompt_token_ids: list[int] | None = Field(default=None, sa_column=Column(TokenIds))
    output_token_ids: list[int] | None = Field(default=None, sa_column=Column(TokenIds))
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
