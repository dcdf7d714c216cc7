"""Retention: what may go of old experiments, shown first. Outcomes, summaries, figures and events stay for ever."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, func, update
from sqlmodel import Session, col, select

from service.domain.events import EventType
from service.domain.status import Status
from service.store import events
from service.store.tables import BaselineRow, BenchPhaseRow, ExperimentRow, LogRow, RequestRow, utc_now


@dataclass(frozen=True)
class Prunable:
    """The bulk of one finished experiment: its engine's log, and the texts and tokens of its answers."""

    experiment_id: int
    name: str
    finished_at: datetime | None
    bytes: int


def plan(session: Session, *, older_than: timedelta | None, max_bytes: int | None) -> list[Prunable]:
    """What would go, oldest first: everything older than asked, and then the oldest until the rest fits. Pinned baselines stay."""
    pinned = set(session.exec(select(BaselineRow.experiment_id)))
    sizes = _sizes(session)
    rows = session.exec(select(ExperimentRow).where(ExperimentRow.status == Status.FINISHED).order_by(col(ExperimentRow.id)))
    held = sum(sizes.values())
    limit = utc_now() - older_than if older_than is not None else None
    going: list[Prunable] = []
    for row in rows:
        size = sizes.get(row.id or 0, 0)
        too_old = limit is not None and row.finished_at is not None and row.finished_at < limit
        too_much = max_bytes is not None and held > max_bytes
        if size and row.id not in pinned and (too_old or too_much):
            going.append(Prunable(row.id or 0, row.name, row.finished_at, size))
            held -= size
    return going


def _sizes(session: Session) -> dict[int, int]:
    """Bytes of log and answers per experiment; of texts characters, to be exact, and of tokens' ids as they are kept."""
    logs = session.exec(select(LogRow.experiment_id, func.sum(func.length(LogRow.text))).group_by(col(LogRow.experiment_id)))
    sizes = {int(one): int(size or 0) for one, size in logs}
    length = func.length(RequestRow.text) + func.length(RequestRow.reasoning_text)
    for ids in (RequestRow.prompt_token_ids, RequestRow.output_token_ids):
        length += func.coalesce(func.length(ids), 0)
    texts = session.exec(
        select(BenchPhaseRow.experiment_id, func.sum(length))
        .join(RequestRow, col(RequestRow.bench_phase_id) == BenchPhaseRow.id)
        .group_by(col(BenchPhaseRow.experiment_id))
    )
    for one, size in texts:
        sizes[int(one)] = sizes.get(int(one), 0) + int(size or 0)
    return sizes


def prune(session: Session, going: list[Prunable], actor: str) -> None:
    """Remove the bulk of these experiments."""
    if not going:
        return
    experiment_ids = [one.experiment_id for one in going]
    session.execute(delete(LogRow).where(col(LogRow.experiment_id).in_(experiment_ids)))
    phases = select(BenchPhaseRow.id).where(col(BenchPhaseRow.experiment_id).in_(experiment_ids))
    session.execute(
        update(RequestRow)
        .where(col(RequestRow.bench_phase_id).in_(phases))
        .values(text="", reasoning_text="", itl_ms=[], tool_calls=[], prompt_token_ids=None, output_token_ids=None)
        .execution_options(synchronize_session=False)
    )
    data = {"experiments": len(going), "bytes": sum(one.bytes for one in going), "newest": max(experiment_ids)}
    events.emit(session, EventType.LOGS_PRUNED, actor, data=data)
