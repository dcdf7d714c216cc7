"""Real hosts: shifts that park production, requests to a host's worker, who this installation is."""

import uuid
from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "host_requests",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("host_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("args", sa.JSON(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("ok", sa.Boolean(), nullable=True),
        sa.Column("answer", sa.JSON(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("fence", sa.Integer(), nullable=True),
        sa.CheckConstraint("status IN ('queued', 'running', 'finished')", name=op.f("ck_host_requests_status")),
        sa.ForeignKeyConstraint(["host_id"], ["hosts.id"], name=op.f("fk_host_requests_host_id_hosts")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_host_requests")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_host_requests_waiting", "host_requests", ["host_id", "status", "id"])
    installation = op.create_table(
        "installation",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("service_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_installation")),
    )
    op.bulk_insert(installation, [{"id": 1, "service_id": str(uuid.uuid4())}])
    # Plain ALTERs, no batch: a batch would rebuild the table under the foreign keys of a running service.
    op.add_column("hosts", sa.Column("open_by", sa.String(), nullable=True))
    op.add_column("hosts", sa.Column("give_back_by", sa.String(), nullable=True))
    op.add_column("hosts", sa.Column("unreachable_since", sa.DateTime(timezone=True), nullable=True))
    op.add_column("hosts", sa.Column("report", sa.JSON(), nullable=False, server_default="{}"))
    op.add_column("shifts", sa.Column("phase", sa.Text(), nullable=False, server_default="open"))
    op.add_column("shifts", sa.Column("parked", sa.JSON(), nullable=False, server_default="{}"))
    op.add_column("shifts", sa.Column("failures", sa.JSON(), nullable=False, server_default="[]"))
    op.add_column("shifts", sa.Column("idle_since", sa.DateTime(timezone=True), nullable=True))
    op.execute("UPDATE shifts SET phase = 'closed' WHERE closed_at IS NOT NULL")


def downgrade() -> None:
    for name in ("idle_since", "failures", "parked", "phase"):
        op.drop_column("shifts", name)
    for name in ("report", "unreachable_since", "give_back_by", "open_by"):
        op.drop_column("hosts", name)
    op.drop_table("installation")
    op.drop_index("ix_host_requests_waiting", "host_requests")
    op.drop_table("host_requests")
