"""Who may do what, and what the metrics count."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0006"
down_revision: str | None = "0005"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("prefix", sa.String(), nullable=False),
        sa.Column("token_hash", sa.String(), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_tokens_token_hash")),
        sqlite_autoincrement=True,
    )
    op.add_column("hosts", sa.Column("claims_lost", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("experiments", sa.Column("engine_kind", sa.Text(), nullable=False, server_default=""))
    experiments = sa.table("experiments", sa.column("spec", sa.JSON()), sa.column("engine_kind", sa.Text()))
    op.execute(experiments.update().values(engine_kind=sa.func.coalesce(experiments.c.spec["engine"]["kind"].as_string(), "")))
    op.create_index("ix_experiments_figures", "experiments", ["host_id", "status", "outcome", "reason", "engine_kind"])
    op.create_index("ix_events_type", "events", ["type", "id"])


def downgrade() -> None:
    op.drop_index("ix_events_type", table_name="events")
    op.drop_index("ix_experiments_figures", table_name="experiments")
    op.drop_column("experiments", "engine_kind")
    op.drop_column("hosts", "claims_lost")
    op.drop_table("tokens")
