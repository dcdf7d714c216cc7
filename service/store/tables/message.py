"""Who is told what, and what became of each message."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, CheckConstraint, Column, Index, Text, UniqueConstraint
from sqlmodel import Field, SQLModel

from service.store.columns import json_column, time_column, utc_now


class NotifierRow(SQLModel, table=True):
    """A place that messages go to."""

    __tablename__ = "notifiers"
    __table_args__ = (
        UniqueConstraint("name"),
        CheckConstraint("kind IN ('slack', 'webhook')", name="kind"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, primary_key=True)
    name: str
    """As an experiment's `notify:` names it: `slack:infra` is kind and name."""
    kind: str
    url: str = Field(sa_column=Column(Text, nullable=False))
    """A Slack webhook's address is a secret: it is shown by its host alone."""
    secret: str | None = None
    """`whsec_...`; what a webhook's payloads are signed with."""
    old_secret: str | None = None
    """Signs beside the new one while a receiver changes over."""
    events: list[str] = Field(default_factory=list, sa_column=json_column())
    """Types of events; empty is what people usually want."""
    hosts: list[str] = Field(default_factory=list, sa_column=json_column())
    """Only what happens on these hosts; empty is every host."""
    default: bool = False
    """Told of what nobody else is named for."""
    after_event: int = 0
    """The newest event when it was added or enabled again: older ones are not told."""
    quiet_until: float | None = None
    """The receiver asked for a pause (Retry-After); seconds since 1970 by the database's clock."""
    digest_event: int = 0
    """The newest event that its digests have told of."""
    disabled_at: datetime | None = Field(default=None, sa_column=time_column())
    disabled_because: str | None = Field(default=None, sa_column=Column(Text))
    created_by: str
    created_at: datetime = Field(default_factory=utc_now, sa_column=time_column(nullable=False))


class DeliveryRow(SQLModel, table=True):
    """One message to one notifier: made once, tried until it has arrived or is given up."""

    __tablename__ = "deliveries"
    __table_args__ = (
        UniqueConstraint("notifier_id", "key"),
        Index("ix_deliveries_due", "status", "next_try"),
        Index("ix_deliveries_order", "notifier_id", "line", "id"),
        Index("ix_deliveries_experiment", "experiment_id", "id"),
        CheckConstraint("status IN ('pending', 'delivered', 'dead')", name="status"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, primary_key=True)
    notifier_id: int = Field(foreign_key="notifiers.id")
    key: str
    """What makes it this message and no other, e.g. `event:812`: the same fact is told once."""
    event_id: int | None = Field(default=None, foreign_key="events.id")
    experiment_id: int | None = Field(default=None, foreign_key="experiments.id")
    line: str
    """What must arrive in order: the messages of one experiment, of one host."""
    type: str
    message_id: str
    """The receiver's means to tell a second try from a second message (`webhook-id`)."""
    body: dict[str, Any] = Field(default_factory=dict, sa_column=json_column())
    """The message in words and figures, without secrets; the notifier's kind says how it is written."""
    status: str = "pending"
    ended_because: str | None = Field(default=None, sa_column=Column(Text))
    """Why it is dead."""
    attempts: int = 0
    """Tries that failed, since it was made or replayed."""
    next_try: float = 0.0
    """Seconds since 1970 by the database's clock."""
    claimed_until: float | None = None
    """Somebody is sending it, until then."""
    claim: str | None = None
    """Who is: what another one found out in the meantime changes nothing."""
    created_at: datetime = Field(default_factory=utc_now, sa_column=time_column(nullable=False))
    delivered_at: datetime | None = Field(default=None, sa_column=time_column())


class AttemptRow(SQLModel, table=True):
    """One try of a delivery."""

    __tablename__ = "delivery_attempts"
    __table_args__ = (Index("ix_delivery_attempts_delivery", "delivery_id", "id"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True)
    delivery_id: int = Field(foreign_key="deliveries.id")
    at: datetime = Field(default_factory=utc_now, sa_column=time_column(nullable=False))
    http_status: int | None = None
    error: str | None = Field(default=None, sa_column=Column(Text))
    answer: str = Field(default="", sa_column=Column(Text, nullable=False))
    """The beginning of what the receiver answered."""
    seconds: float = 0.0


class MarkRow(SQLModel, table=True):
    """How far a reader of the events has come: moved in the transaction of what it made of them."""

    __tablename__ = "marks"

    name: str = Field(primary_key=True)
    event_id: int = 0
    state: Any = Field(default=None, sa_column=Column(JSON))
