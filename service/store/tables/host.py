"""A host with its lease, its shifts, and what is asked of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Boolean, CheckConstraint, Column, Index, Integer, Text, UniqueConstraint, false, text
from sqlmodel import Field, SQLModel

from service.store.columns import json_column, time_column, utc_now


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
    claims_lost: int = Field(default=0, sa_column=Column(Integer, nullable=False, server_default="0"))
    """How often a lease ran out unreturned and somebody else took the host."""
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
