"""Messages: where they go, each one's way, and how far the events are read."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0005"
down_revision: str | None = "0004"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "notifiers",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("secret", sa.String(), nullable=True),
        sa.Column("old_secret", sa.String(), nullable=True),
        sa.Column("events", sa.JSON(), nullable=False),
        sa.Column("hosts", sa.JSON(), nullable=False),
        sa.Column("default", sa.Boolean(), nullable=False),
        sa.Column("after_event", sa.Integer(), nullable=False),
        sa.Column("quiet_until", sa.Float(), nullable=True),
        sa.Column("digest_event", sa.Integer(), nullable=False),
        sa.Column("disabled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("disabled_because", sa.Text(), nullable=True),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("kind IN ('slack', 'webhook')", name=op.f("ck_notifiers_kind")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notifiers")),
        sa.UniqueConstraint("name", name=op.f("uq_notifiers_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "deliveries",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("notifier_id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("event_id", sa.Integer(), nullable=True),
        sa.Column("experiment_id", sa.Integer(), nullable=True),
        sa.Column("line", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("message_id", sa.String(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("ended_because", sa.Text(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_try", sa.Float(), nullable=False),
        sa.Column("claimed_until", sa.Float(), nullable=True),
        sa.Column("claim", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("delivered_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("status IN ('pending', 'delivered', 'dead')", name=op.f("ck_deliveries_status")),
        sa.ForeignKeyConstraint(["event_id"], ["events.id"], name=op.f("fk_deliveries_event_id_events")),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"], name=op.f("fk_deliveries_experiment_id_experiments")),
        sa.ForeignKeyConstraint(["notifier_id"], ["notifiers.id"], name=op.f("fk_deliveries_notifier_id_notifiers")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
        sa.UniqueConstraint("notifier_id", "key", name=op.f("uq_deliveries_notifier_id_key")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_deliveries_due", "deliveries", ["status", "next_try"])
    op.create_index("ix_deliveries_experiment", "deliveries", ["experiment_id", "id"])
    op.create_index("ix_deliveries_order", "deliveries", ["notifier_id", "line", "id"])
    op.create_table(
        "delivery_attempts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("delivery_id", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("http_status", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["delivery_id"], ["deliveries.id"], name=op.f("fk_delivery_attempts_delivery_id_deliveries")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_delivery_attempts")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_delivery_attempts_delivery", "delivery_attempts", ["delivery_id", "id"])
    op.create_table(
        "marks",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("event_id", sa.Integer(), nullable=False),
        sa.Column("state", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_marks")),
    )


def downgrade() -> None:
    op.drop_index("ix_delivery_attempts_delivery", table_name="delivery_attempts")
    op.drop_table("delivery_attempts")
    op.drop_index("ix_deliveries_order", table_name="deliveries")
    op.drop_index("ix_deliveries_experiment", table_name="deliveries")
    op.drop_index("ix_deliveries_due", table_name="deliveries")
    op.drop_table("deliveries")
    op.drop_table("notifiers")
    op.drop_table("marks")
