"""Retention: what may go of old experiments, shown first. Outcomes, summaries, figures and events stay for ever."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, func, update
from sqlmodel import Session, col, select

from service.domain.events import EventType
from service.domain.status import Outcome, Status
from service.store import events
from service.store.tables import BaselineRow, BenchPhaseRow, ExperimentRow, LogRow, RequestRow, utc_now

PRUNED = "pruned"
"""Among a command's facts: its folder on the host may go, too."""
WORK = "/var/lib/expctl-work/expctl-"
"""What a path into such a folder begins with."""


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
        if (size or has_work_folder(row)) and row.id not in pinned and (too_old or too_much):
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
    for row in session.exec(select(ExperimentRow).where(col(ExperimentRow.id).in_(experiment_ids))):
        if has_work_folder(row):
            row.facts = row.facts | {PRUNED: True}
            session.add(row)
    data = {"experiments": len(going), "bytes": sum(one.bytes for one in going), "newest": max(experiment_ids)}
    events.emit(session, EventType.LOGS_PRUNED, actor, data=data)


def has_work_folder(row: ExperimentRow) -> bool:
    """Whether it is a command that worked in a folder of its own, of which nobody has said yet that it may go."""
    engine = row.spec["engine"]
    return bool(engine["kind"] == "command" and not engine.get("cwd") and row.started_at is not None and PRUNED not in row.facts)


def work_is_over(session: Session, host_id: int, experiment_ids: Sequence[int]) -> dict[int, str]:
    """Names, by id, of those finished commands whose folder on the host nobody needs any more.

    All that was asked for was fetched from it, or it was pruned; one that failed is kept for whoever looks why, and one that an
    experiment still to come names is kept for that.
    """
    of_host = select(ExperimentRow).where(ExperimentRow.host_id == host_id)
    to_come = " ".join(json.dumps(row.spec) for row in session.exec(of_host.where(ExperimentRow.status != Status.FINISHED)))
    finished = of_host.where(col(ExperimentRow.id).in_(experiment_ids), ExperimentRow.status == Status.FINISHED)
    return {row.id or 0: row.name for row in session.exec(finished) if _done_with(row) and not re.search(rf"{WORK}{row.id}(?!\d)", to_come)}


def _done_with(row: ExperimentRow) -> bool:
    if PRUNED in row.facts:
        return True
    fetched = bool(row.facts.get("artifacts")) and not row.facts.get("artifact_warnings")
    return has_work_folder(row) and row.outcome == Outcome.SUCCEEDED and fetched
