"""Loads of one configuration are experiments that know of one another; requests keep their tokens' ids."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0007"
down_revision: str | None = "0006"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("experiments", sa.Column("load", sa.Integer(), nullable=False, server_default="1"))
    op.add_column("experiments", sa.Column("load_of", sa.Integer(), nullable=True))
    op.add_column("experiments", sa.Column("recheck_of", sa.Integer(), nullable=True))
    op.create_index("ix_experiments_load_of", "experiments", ["load_of"])
    op.create_index("ix_experiments_recheck_of", "experiments", ["recheck_of"])
    # It was 1 in every row: a load has always been an experiment of its own.
    op.drop_column("bench_phases", "load")
    op.add_column("requests", sa.Column("cached_tokens", sa.Integer(), nullable=True))
    op.add_column("requests", sa.Column("prompt_token_ids", sa.LargeBinary(), nullable=True))
    op.add_column("requests", sa.Column("output_token_ids", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    for column in ("output_token_ids", "prompt_token_ids", "cached_tokens"):
        op.drop_column("requests", column)
    op.add_column("bench_phases", sa.Column("load", sa.Integer(), nullable=False, server_default="1"))
    op.drop_index("ix_experiments_recheck_of", table_name="experiments")
    op.drop_index("ix_experiments_load_of", table_name="experiments")
    for column in ("recheck_of", "load_of", "load"):
        op.drop_column("experiments", column)
