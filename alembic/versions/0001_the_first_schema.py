"""The first schema: hosts, shifts, experiments, steps, results, events, logs."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0001"
down_revision: str | None = None
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "hosts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("transport", sa.String(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("blocked", sa.Text(), nullable=True),
        sa.Column("lease_owner", sa.String(), nullable=True),
        sa.Column("lease_token", sa.String(), nullable=True),
        sa.Column("lease_expires", sa.Float(), nullable=True),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("worker_silent", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hosts")),
        sa.UniqueConstraint("name", name=op.f("uq_hosts_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "shifts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("host_id", sa.Integer(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("closing", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["host_id"], ["hosts.id"], name=op.f("fk_shifts_host_id_hosts")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_shifts")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("shifts", schema=None) as batch_op:
        batch_op.create_index(
            "uq_shifts_open_host",
            ["host_id"],
            unique=True,
            sqlite_where=sa.text("closed_at IS NULL"),
            postgresql_where=sa.text("closed_at IS NULL"),
        )

    op.create_table(
        "experiments",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("group_id", sa.String(), nullable=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("host_id", sa.Integer(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("step", sa.String(), nullable=True),
        sa.Column("outcome", sa.String(), nullable=True),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("spec_hash", sa.String(), nullable=False),
        sa.Column("engine_hash", sa.String(), nullable=False),
        sa.Column("bench_hash", sa.String(), nullable=False),
        sa.Column("served_model", sa.String(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("baseline_id", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("shift_id", sa.Integer(), nullable=True),
        sa.Column("fence", sa.Integer(), nullable=True),
        sa.Column("recoveries", sa.Integer(), nullable=False),
        sa.Column("progress", sa.JSON(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.CheckConstraint("(status = 'finished') = (finished_at IS NOT NULL)", name=op.f("ck_experiments_time_when_finished")),
        sa.CheckConstraint("(status = 'finished') = (outcome IS NOT NULL)", name=op.f("ck_experiments_outcome_when_finished")),
        sa.CheckConstraint(
            "outcome IS NULL OR outcome = 'succeeded' OR reason IS NOT NULL", name=op.f("ck_experiments_reason_unless_succeeded")
        ),
        sa.CheckConstraint("status IN ('held', 'queued', 'running', 'stopping', 'finished')", name=op.f("ck_experiments_status")),
        sa.ForeignKeyConstraint(["baseline_id"], ["experiments.id"], name=op.f("fk_experiments_baseline_id_experiments")),
        sa.ForeignKeyConstraint(["host_id"], ["hosts.id"], name=op.f("fk_experiments_host_id_hosts")),
        sa.ForeignKeyConstraint(["shift_id"], ["shifts.id"], name=op.f("fk_experiments_shift_id_shifts")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_experiments")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("experiments", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_experiments_name"), ["name"], unique=False)
        batch_op.create_index("ix_experiments_queue", ["host_id", "status", "priority", "id"], unique=False)
        batch_op.create_index(batch_op.f("ix_experiments_spec_hash"), ["spec_hash"], unique=False)
        batch_op.create_index(
            "uq_experiments_active_host",
            ["host_id"],
            unique=True,
            sqlite_where=sa.text("status IN ('running', 'stopping')"),
            postgresql_where=sa.text("status IN ('running', 'stopping')"),
        )

    op.create_table(
        "bench_phases",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("experiment_id", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("load", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("concurrency", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("superseded", sa.Boolean(), nullable=False),
        sa.Column("summary", sa.JSON(), nullable=False),
        sa.CheckConstraint("kind IN ('first_request', 'warmup', 'measured')", name=op.f("ck_bench_phases_kind")),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"], name=op.f("fk_bench_phases_experiment_id_experiments")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bench_phases")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("bench_phases", schema=None) as batch_op:
        batch_op.create_index("ix_bench_phases_experiment", ["experiment_id", "id"], unique=False)

    op.create_table(
        "events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=True),
        sa.Column("experiment_id", sa.Integer(), nullable=True),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"], name=op.f("fk_events_experiment_id_experiments")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("events", schema=None) as batch_op:
        batch_op.create_index("ix_events_experiment", ["experiment_id", "id"], unique=False)

    op.create_table(
        "log_chunks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("experiment_id", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("step", sa.String(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"], name=op.f("fk_log_chunks_experiment_id_experiments")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_log_chunks")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("log_chunks", schema=None) as batch_op:
        batch_op.create_index("ix_log_chunks_experiment", ["experiment_id", "id"], unique=False)

    op.create_table(
        "steps",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("experiment_id", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("unit", sa.String(), nullable=True),
        sa.Column("invocation_id", sa.String(), nullable=True),
        sa.Column("cursor", sa.String(), nullable=True),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"], name=op.f("fk_steps_experiment_id_experiments")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_steps")),
        sa.UniqueConstraint("experiment_id", "attempt", "name", name=op.f("uq_steps_experiment_id_attempt_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "requests",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("bench_phase_id", sa.Integer(), nullable=False),
        sa.Column("prompt", sa.String(), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("ok", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("http_status", sa.Integer(), nullable=True),
        sa.Column("finish_reason", sa.String(), nullable=True),
        sa.Column("ttft_s", sa.Float(), nullable=True),
        sa.Column("ttfa_s", sa.Float(), nullable=True),
        sa.Column("tpot_s", sa.Float(), nullable=True),
        sa.Column("e2e_s", sa.Float(), nullable=True),
        sa.Column("prompt_tokens", sa.Integer(), nullable=True),
        sa.Column("completion_tokens", sa.Integer(), nullable=True),
        sa.Column("reasoning_tokens", sa.Integer(), nullable=True),
        sa.Column("tokens_from", sa.String(), nullable=True),
        sa.Column("estimated_tokens", sa.Integer(), nullable=True),
        sa.Column("tps", sa.Float(), nullable=True),
        sa.Column("itl_ms", sa.JSON(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("reasoning_text", sa.Text(), nullable=False),
        sa.Column("tool_calls", sa.JSON(), nullable=False),
        sa.Column("error_code", sa.Integer(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("warnings", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["bench_phase_id"], ["bench_phases.id"], name=op.f("fk_requests_bench_phase_id_bench_phases")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_requests")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("requests", schema=None) as batch_op:
        batch_op.create_index("ix_requests_phase", ["bench_phase_id", "id"], unique=False)

    op.create_table(
        "speculation",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("bench_phase_id", sa.Integer(), nullable=False),
        sa.Column("request_id", sa.Integer(), nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=True),
        sa.Column("drafts", sa.Integer(), nullable=True),
        sa.Column("draft_tokens", sa.Integer(), nullable=True),
        sa.Column("accepted_tokens", sa.Integer(), nullable=True),
        sa.Column("mean_acceptance_length", sa.Float(), nullable=True),
        sa.Column("draft_acceptance_rate", sa.Float(), nullable=True),
        sa.Column("per_position_acceptance", sa.JSON(), nullable=True),
        sa.Column("effective_tokens_per_step", sa.Float(), nullable=True),
        sa.Column("draft_coverage", sa.Float(), nullable=True),
        sa.Column("per_engine", sa.JSON(), nullable=False),
        sa.Column("comparable", sa.Boolean(), nullable=False),
        sa.Column("warnings", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["bench_phase_id"], ["bench_phases.id"], name=op.f("fk_speculation_bench_phase_id_bench_phases")),
        sa.ForeignKeyConstraint(["request_id"], ["requests.id"], name=op.f("fk_speculation_request_id_requests")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_speculation")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("speculation", schema=None) as batch_op:
        batch_op.create_index("ix_speculation_phase", ["bench_phase_id"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("speculation", schema=None) as batch_op:
        batch_op.drop_index("ix_speculation_phase")

    op.drop_table("speculation")
    with op.batch_alter_table("requests", schema=None) as batch_op:
        batch_op.drop_index("ix_requests_phase")

    op.drop_table("requests")
    op.drop_table("steps")
    with op.batch_alter_table("log_chunks", schema=None) as batch_op:
        batch_op.drop_index("ix_log_chunks_experiment")

    op.drop_table("log_chunks")
    with op.batch_alter_table("events", schema=None) as batch_op:
        batch_op.drop_index("ix_events_experiment")

    op.drop_table("events")
    with op.batch_alter_table("bench_phases", schema=None) as batch_op:
        batch_op.drop_index("ix_bench_phases_experiment")

    op.drop_table("bench_phases")
    with op.batch_alter_table("experiments", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_experiments_active_host",
            sqlite_where=sa.text("status IN ('running', 'stopping')"),
            postgresql_where=sa.text("status IN ('running', 'stopping')"),
        )
        batch_op.drop_index(batch_op.f("ix_experiments_spec_hash"))
        batch_op.drop_index("ix_experiments_queue")
        batch_op.drop_index(batch_op.f("ix_experiments_name"))

    op.drop_table("experiments")
    with op.batch_alter_table("shifts", schema=None) as batch_op:
        batch_op.drop_index("uq_shifts_open_host", sqlite_where=sa.text("closed_at IS NULL"), postgresql_where=sa.text("closed_at IS NULL"))

    op.drop_table("shifts")
    op.drop_table("hosts")
