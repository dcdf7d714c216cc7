"""What pages look at: the queue in its order, what ended lately, what a night touched, the end of a log.

Every function reads a bounded number of rows by an index, however many experiments there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, case, func, or_
from sqlmodel import Session, col, select

from service.domain.events import Event, EventType
from service.domain.status import ACTIVE, Status
from service.store import experiments, hosts
from service.store.tables import BenchPhaseRow, EventRow, ExperimentRow, LogRow, ShiftRow, StepRow

Key = TypeVar("Key")
Found = TypeVar("Found")
OPEN = (Status.RUNNING, Status.STOPPING, Status.QUEUED, Status.HELD)
MOST = 400
"""Experiments that one night is drawn with."""
NOISE = frozenset({EventType.LOAD_PROGRESS, EventType.BENCH_PROGRESS})
"""Events that come every second while something runs."""


def open_rows(
    session: Session, *, statuses: Sequence[str] = OPEN, host: str | None = None, limit: int = 50, offset: int = 0
) -> list[ExperimentRow]:
    """What runs, then what waits in the order in which it is chosen, host by host."""
    first = case((col(ExperimentRow.status).in_(list(ACTIVE)), 0), else_=1)
    query = select(ExperimentRow.id).where(col(ExperimentRow.status).in_(list(statuses)))
    if host is not None:
        query = query.where(ExperimentRow.host_id == hosts.by_name(session, host).id)
    ids = session.exec(query.order_by(first, col(ExperimentRow.host_id), *experiments.ORDER).limit(limit).offset(offset)).all()
    return _rows(session, [one for one in ids if one is not None])


def counts(session: Session, host: str | None = None) -> dict[str, int]:
    """How many experiments are in each status."""
    query = select(ExperimentRow.status, func.count()).group_by(col(ExperimentRow.status))
    if host is not None:
        query = query.where(ExperimentRow.host_id == hosts.by_name(session, host).id)
    return dict(session.exec(query).all())


def ended_rows(
    session: Session, *, host: str | None = None, limit: int = 20, before: int | None = None
) -> tuple[list[ExperimentRow], int | None]:
    """What ended last, latest first; and the event to go on before, None where nothing is left."""
    query = select(EventRow.id, EventRow.experiment_id).where(EventRow.type == EventType.EXPERIMENT_FINISHED)
    if host is not None:
        query = query.where(EventRow.host == hosts.by_name(session, host).name)
    if before is not None:
        query = query.where(col(EventRow.id) < before)
    found = session.exec(query.order_by(col(EventRow.id).desc()).limit(limit + 1)).all()
    rows = _rows(session, [one for _, one in found[:limit] if one is not None])
    return rows, found[limit - 1][0] if len(found) > limit else None


def last_finish(session: Session) -> int:
    """The newest ending's event id: while it stays, so does every result."""
    query = select(func.max(EventRow.id)).where(EventRow.type == EventType.EXPERIMENT_FINISHED)
    return session.exec(query).one() or 0


class Kept(Generic[Key, Found]):
    """What the process remembers of its databases until something ends there: a finished experiment stays as it is."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Engine | Connection, tuple[int, dict[Key, Found]]] = WeakKeyDictionary()

    def of(self, session: Session) -> dict[Key, Found]:
        """What is known of a session's database, to read and to add to; empty anew after each ending."""
        base, latest = session.get_bind(), last_finish(session)
        at, known = self._known.get(base, (-1, {}))
        if at != latest:
            known = {}
            self._known[base] = latest, known
        return known


def since(session: Session, moment: datetime) -> int:
    """The id of the last event before a moment; 0 where there is none.

    Ids grow with the time, so it is looked for by halves: the times themselves have no index.
    """
    low, high = 0, session.exec(select(func.max(EventRow.id))).one() or 0
    while low < high:
        middle = (low + high + 1) // 2
        query = select(EventRow.id, EventRow.at).where(col(EventRow.id) <= middle).order_by(col(EventRow.id).desc()).limit(1)
        found = session.exec(query).first()
        if found is None or found[1] < moment:
            low = middle
        else:
            high = (found[0] or 1) - 1
    return low


def finishes(session: Session, after: int, until: datetime | None = None) -> list[EventRow]:
    """The endings after an event, oldest first."""
    query = select(EventRow).where(EventRow.type == EventType.EXPERIMENT_FINISHED, col(EventRow.id) > after)
    found = session.exec(query.order_by(col(EventRow.id)).limit(MOST)).all()
    return [event for event in found if until is None or event.at < until]


def touched(session: Session, after: int) -> list[ExperimentRow]:
    """What started or ended after an event, and what runs."""
    kinds = [EventType.EXPERIMENT_STARTED, EventType.EXPERIMENT_FINISHED]
    query = select(EventRow.experiment_id).where(col(EventRow.type).in_(kinds), col(EventRow.id) > after)
    ids = set(session.exec(query.order_by(col(EventRow.id).desc()).limit(2 * MOST)).all())
    ids |= set(session.exec(select(ExperimentRow.id).where(col(ExperimentRow.status).in_(list(ACTIVE)))).all())
    rows = _rows(session, sorted(one for one in ids if one is not None)[-MOST:])
    return [row for row in rows if row.started_at is not None]


def shifts_since(session: Session, moment: datetime) -> list[ShiftRow]:
    """The shifts that were open after a moment, oldest first."""
    query = select(ShiftRow).where(or_(col(ShiftRow.closed_at).is_(None), col(ShiftRow.closed_at) > moment))
    return list(session.exec(query.order_by(col(ShiftRow.id)).limit(MOST)))


def steps_of(session: Session, ids: Iterable[int]) -> dict[int, list[StepRow]]:
    """The steps of some experiments, oldest first."""
    found: dict[int, list[StepRow]] = {}
    for row in session.exec(select(StepRow).where(col(StepRow.experiment_id).in_(list(ids))).order_by(col(StepRow.id))):
        found.setdefault(row.experiment_id, []).append(row)
    return found


def log_tail(session: Session, experiment_id: int, *, step: str | None = None, pieces: int = 60) -> list[LogRow]:
    """The last pieces of a log, oldest first."""
    query = select(LogRow).where(LogRow.experiment_id == experiment_id)
    if step is not None:
        query = query.where(LogRow.step == step)
    return list(session.exec(query.order_by(col(LogRow.id).desc()).limit(pieces)))[::-1]


def story(session: Session, experiment_id: int, limit: int = 60) -> list[Event]:
    """What happened to an experiment, latest first, without what comes every second."""
    query = select(EventRow).where(EventRow.experiment_id == experiment_id, col(EventRow.type).not_in(list(NOISE)))
    return [_event(row) for row in session.exec(query.order_by(col(EventRow.id).desc()).limit(limit))]


def samples(session: Session, experiment_id: int, kind: EventType, limit: int = 300) -> list[Event]:
    """The latest signs of progress of a kind, oldest first."""
    query = select(EventRow).where(EventRow.experiment_id == experiment_id, EventRow.type == kind)
    return [_event(row) for row in session.exec(query.order_by(col(EventRow.id).desc()).limit(limit))][::-1]


def _event(row: EventRow) -> Event:
    return Event(
        id=row.id or 0, at=row.at, type=EventType(row.type), actor=row.actor, host=row.host, experiment_id=row.experiment_id, data=row.data
    )


def _rows(session: Session, ids: Sequence[int]) -> list[ExperimentRow]:
    """Rows in the order of their ids as given, each once."""
    found = {row.id: row for row in session.exec(select(ExperimentRow).where(col(ExperimentRow.id).in_(ids)))}
    return [found[one] for one in dict.fromkeys(ids) if one in found]


def speeds(session: Session, ids: Sequence[int]) -> dict[int, float]:
    """Tokens/s of the first level that each experiment measured: the mean over its requests, or where that is not known of all together."""
    query = (
        select(BenchPhaseRow.experiment_id, BenchPhaseRow.summary)
        .where(col(BenchPhaseRow.experiment_id).in_(ids), BenchPhaseRow.kind == "measured", col(BenchPhaseRow.superseded).is_(False))
        .where(col(BenchPhaseRow.finished_at).is_not(None))
        .order_by(col(BenchPhaseRow.id))
    )
    found: dict[int, float] = {}
    for one, summary in session.exec(query):
        speed = (summary.get("tps") or {}).get("mean") or summary.get("output_tps")
        if speed is not None:
            found.setdefault(one, speed)
    return found
