"""What every table's columns share: how constraints are named, moments, JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, Column
from sqlmodel import SQLModel

from service.store.database import UtcDateTime

SQLModel.metadata.naming_convention = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
"""Set before the first table is made. A constraint without a name cannot be dropped by a migration."""


def utc_now() -> datetime:
    """Now, aware."""
    return datetime.now(UTC)


def time_column(*, nullable: bool = True) -> Any:
    """A moment, aware, in UTC."""
    return Column(UtcDateTime(), nullable=nullable)


def json_column() -> Any:
    """A value that is never null."""
    return Column(JSON, nullable=False)
