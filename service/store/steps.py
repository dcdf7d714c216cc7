"""Steps of an attempt, and the engine's log copied while they run."""

from __future__ import annotations

from typing import Any

from sqlmodel import Session, col, select

from service.domain.events import EventType
from service.domain.status import StepName
from service.store import events, experiments, hosts
from service.store.hosts import Lease
from service.store.tables import LogRow, StepRow, utc_now


def find(session: Session, experiment_id: int, attempt: int, name: StepName) -> StepRow | None:
    """One step, if it was ever begun."""
    query = select(StepRow).where(StepRow.experiment_id == experiment_id, StepRow.attempt == attempt, StepRow.name == name)
    return session.exec(query).one_or_none()


def every(session: Session, experiment_id: int) -> list[StepRow]:
    """All steps of an experiment in the order they were begun."""
    return list(session.exec(select(StepRow).where(StepRow.experiment_id == experiment_id).order_by(col(StepRow.id))))


def begin(session: Session, lease: Lease, experiment_id: int, attempt: int, name: StepName) -> StepRow:
    """Begin a step, or take up one that was begun before."""
    experiments.note_step(session, lease, experiment_id, name)
    row = find(session, experiment_id, attempt, name)
    if row is None:
        row = StepRow(experiment_id=experiment_id, attempt=attempt, name=name)
        session.add(row)
        session.flush()
        actor = f"worker:{lease.owner}"
        events.emit(
            session, EventType.EXPERIMENT_STEP, actor, host=lease.host, experiment_id=experiment_id, data={"step": name, "state": "begun"}
        )
    return row


def note(session: Session, lease: Lease, step_id: int, *, evidence: dict[str, Any] | None = None, **values: str | None) -> None:
    """Record what a step saw: unit, invocation_id, cursor, evidence."""
    hosts.guard(session, lease)
    row = session.get_one(StepRow, step_id)
    for key, value in values.items():
        setattr(row, key, value)
    if evidence:
        row.evidence = row.evidence | evidence
    session.add(row)


def end(session: Session, lease: Lease, step_id: int) -> StepRow | None:
    """Mark a step as done. The row; None where it was done before."""
    hosts.guard(session, lease)
    row = session.get_one(StepRow, step_id)
    if row.finished_at is not None:
        return None
    row.finished_at = utc_now()
    session.add(row)
    seconds = round((row.finished_at - row.started_at).total_seconds(), 3)
    data = {"step": row.name, "state": "done", "seconds": seconds}
    events.emit(session, EventType.EXPERIMENT_STEP, f"worker:{lease.owner}", host=lease.host, experiment_id=row.experiment_id, data=data)
    return row


def append_log(session: Session, lease: Lease, step: StepRow, lines: tuple[str, ...], cursor: str) -> None:
    """Copy log lines and move the cursor in one transaction, so that nothing is lost or doubled."""
    hosts.guard(session, lease)
    if lines:
        session.add(LogRow(experiment_id=step.experiment_id, attempt=step.attempt, step=step.name, text="\n".join(lines)))
    current = session.get_one(StepRow, step.id)
    current.cursor = cursor
    session.add(current)


def log_after(session: Session, experiment_id: int, after: int = 0, *, step: str | None = None, limit: int = 50) -> list[LogRow]:
    """Pieces of the log with an id above `after`, oldest first."""
    query = select(LogRow).where(LogRow.experiment_id == experiment_id, col(LogRow.id) > after).order_by(col(LogRow.id)).limit(limit)
    if step is not None:
        query = query.where(LogRow.step == step)
    return list(session.exec(query))
