"""Steering: rank, not_before, hold, retry, dependencies, pinned baselines, idempotency keys, paused hosts."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("body_hash", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("answer", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_idempotency_keys")),
    )
    op.create_table(
        "baselines",
        sa.Column("host_id", sa.Integer(), nullable=False),
        sa.Column("served_model", sa.String(), nullable=False),
        sa.Column("experiment_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"], name=op.f("fk_baselines_experiment_id_experiments")),
        sa.ForeignKeyConstraint(["host_id"], ["hosts.id"], name=op.f("fk_baselines_host_id_hosts")),
        sa.PrimaryKeyConstraint("host_id", "served_model", name=op.f("pk_baselines")),
    )
    op.create_table(
        "dependencies",
        sa.Column("experiment_id", sa.Integer(), nullable=False),
        sa.Column("after_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["after_id"], ["experiments.id"], name=op.f("fk_dependencies_after_id_experiments")),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"], name=op.f("fk_dependencies_experiment_id_experiments")),
        sa.PrimaryKeyConstraint("experiment_id", "after_id", name=op.f("pk_dependencies")),
    )
    op.create_index("ix_dependencies_after", "dependencies", ["after_id"])
    # Plain ALTERs, no batch: a batch would rebuild the table under the foreign keys of a running service.
    op.add_column("experiments", sa.Column("rank", sa.Float(), server_default="0", nullable=False))
    op.add_column("experiments", sa.Column("not_before", sa.DateTime(timezone=True), nullable=True))
    op.add_column("experiments", sa.Column("held_because", sa.Text(), nullable=True))
    op.add_column("experiments", sa.Column("retry_of", sa.Integer(), nullable=True))
    op.add_column("hosts", sa.Column("paused", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.execute("UPDATE experiments SET rank = id")


def downgrade() -> None:
    op.drop_column("hosts", "paused")
    for column in ("retry_of", "held_because", "not_before", "rank"):
        op.drop_column("experiments", column)
    op.drop_index("ix_dependencies_after", "dependencies")
    op.drop_table("dependencies")
    op.drop_table("baselines")
    op.drop_table("idempotency_keys")
