"""Who works, who is the only one of its kind, and how long things took."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "workers",
        sa.Column("host_id", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["host_id"], ["hosts.id"], name=op.f("fk_workers_host_id_hosts")),
        sa.PrimaryKeyConstraint("host_id", "owner", name=op.f("pk_workers")),
    )
    op.create_table(
        "singletons",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=True),
        sa.Column("token", sa.String(), nullable=True),
        sa.Column("expires", sa.Float(), nullable=True),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_singletons")),
    )
    op.create_table(
        "durations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("host_id", sa.Integer(), nullable=False),
        sa.Column("experiment_id", sa.Integer(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("part", sa.String(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("engine_hash", sa.String(), nullable=False),
        sa.Column("engine_kind", sa.String(), nullable=False),
        sa.Column("served_model", sa.String(), nullable=False),
        sa.Column("bench_hash", sa.String(), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"], name=op.f("fk_durations_experiment_id_experiments")),
        sa.ForeignKeyConstraint(["host_id"], ["hosts.id"], name=op.f("fk_durations_host_id_hosts")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_durations")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_durations_engine", "durations", ["host_id", "part", "bench_hash", "engine_hash", "id"])
    op.create_index("ix_durations_experiment", "durations", ["experiment_id"])
    op.create_index("ix_durations_kind", "durations", ["host_id", "part", "bench_hash", "engine_kind", "id"])
    op.create_index("ix_durations_model", "durations", ["host_id", "part", "bench_hash", "served_model", "id"])


def downgrade() -> None:
    op.drop_index("ix_durations_model", table_name="durations")
    op.drop_index("ix_durations_kind", table_name="durations")
    op.drop_index("ix_durations_experiment", table_name="durations")
    op.drop_index("ix_durations_engine", table_name="durations")
    op.drop_table("durations")
    op.drop_table("workers")
    op.drop_table("singletons")
