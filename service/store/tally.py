"""Sums over rows that are only ever added: remembered, and continued from the last id.

Ids grow in the order of the commits, so whoever goes on after the last one it has counted misses none, and every process that
counts comes to the same sum, whenever it started. The first look reads all there is; each later one what is new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, case, func
from sqlalchemy import select as select_columns
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlmodel import Session, col, select

from service.domain.events import EventType
from service.domain.status import StepName
from service.store.tables import AttemptRow, DeliveryRow, DurationRow, EventRow, ExperimentRow, NotifierRow

STEP_S = (1.0, 5.0, 15.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 5400.0, 7200.0, 14400.0, 28800.0)
WAIT_S = (1.0, 10.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0, 43200.0, 86400.0, 172800.0, 604800.0)
"""Bounds of the histograms, seconds: from a step that does nothing to a night, and from at once to a week."""


class seconds_between(FunctionElement[float]):  # noqa: N801 - reads as the SQL function it is
    """Seconds from the first moment to the second."""

    inherit_cache = True


@compiles(seconds_between, "sqlite")
def _sqlite_seconds(element: seconds_between, compiler: SQLCompiler, **kw: Any) -> str:
    begun, ended = (compiler.process(one, **kw) for one in element.clauses)
    return f"((julianday({ended}) - julianday({begun})) * 86400.0)"


@compiles(seconds_between, "postgresql")
def _postgresql_seconds(element: seconds_between, compiler: SQLCompiler, **kw: Any) -> str:
    begun, ended = (compiler.process(one, **kw) for one in element.clauses)
    return f"extract(epoch from ({ended} - {begun}))::double precision"


@dataclass
class Histogram:
    """How many values are at most each bound, how many there are at all, and their sum."""

    bounds: Sequence[float]
    counts: list[int]
    count: int = 0
    total: float = 0.0

    def add(self, counts: Sequence[int], count: int, total: float) -> None:
        """Add those of another look."""
        self.counts = [one + more for one, more in zip(self.counts, counts, strict=True)]
        self.count += count
        self.total += total


class Tries(NamedTuple):
    """Tries of deliveries to one notifier."""

    notifier: str
    result: str
    """delivered or failed."""
    number: int


@dataclass
class Tally:
    """What one process has counted so far. Not for several threads at once."""

    steps: dict[tuple[str, str], Histogram] = field(default_factory=dict)
    """Step and kind of engine -> how long it took."""
    waits: Histogram = field(default_factory=lambda: Histogram(WAIT_S, [0] * len(WAIT_S)))
    """From the submission to the first start."""
    tries: list[Tries] = field(default_factory=list)
    """Of the notifiers that there are; those of one that was removed are gone with it."""
    _by_notifier: dict[tuple[int, bool], int] = field(default_factory=dict)
    _after: dict[str, int] = field(default_factory=dict)

    def count(self, session: Session) -> None:
        """Count what is new. The session must see one moment."""
        newest = {row.__tablename__: _newest(session, row) for row in (DurationRow, EventRow, AttemptRow)}
        if any(newest[table] < after for table, after in self._after.items()):
            # The database is an older copy of itself: what it does not hold did not happen.
            fresh = Tally()
            self.steps, self.waits, self._by_notifier, self._after = fresh.steps, fresh.waits, fresh._by_notifier, {}
        self._count_steps(session, self._after.get("durations", 0))
        self._count_waits(session, self._after.get("events", 0))
        self._count_tries(session, self._after.get("delivery_attempts", 0))
        self._after = newest

    def _count_steps(self, session: Session, after: int) -> None:
        columns = (col(DurationRow.part), col(DurationRow.engine_kind))
        query = (
            select_columns(*(*columns, *_sums(col(DurationRow.seconds), STEP_S)))
            .where(col(DurationRow.id) > after, col(DurationRow.part).in_(list(StepName)))
            .group_by(*columns)
        )
        for step, engine, count, total, *counts in session.execute(query):
            known = self.steps.setdefault((step, engine), Histogram(STEP_S, [0] * len(STEP_S)))
            known.add(counts, count, total)

    def _count_waits(self, session: Session, after: int) -> None:
        waited = seconds_between(col(ExperimentRow.created_at), col(EventRow.at))
        query = (
            select_columns(*_sums(waited, WAIT_S))
            .select_from(EventRow)
            .join(ExperimentRow, col(ExperimentRow.id) == EventRow.experiment_id)
            .where(col(EventRow.type) == EventType.EXPERIMENT_STARTED, col(EventRow.id) > after)
            # Another attempt waits for its pause, not for its turn.
            .where(col(EventRow.data)["attempt"].as_integer() == 1)
        )
        count, total, *counts = session.execute(query).one()
        if count:
            self.waits.add(counts, count, total)

    def _count_tries(self, session: Session, after: int) -> None:
        arrived = col(AttemptRow.error).is_(None)
        query = (
            select(DeliveryRow.notifier_id, arrived, func.count())
            .join(DeliveryRow, col(DeliveryRow.id) == AttemptRow.delivery_id)
            .where(col(AttemptRow.id) > after)
            .group_by(col(DeliveryRow.notifier_id), arrived)
        )
        for notifier_id, ok, count in session.exec(query):
            key = (notifier_id, bool(ok))
            self._by_notifier[key] = self._by_notifier.get(key, 0) + count
        self.tries = [
            Tries(name, "delivered" if ok else "failed", self._by_notifier.get((notifier_id, ok), 0))
            for notifier_id, name in session.exec(select(NotifierRow.id, NotifierRow.name).order_by(NotifierRow.name))
            if notifier_id is not None
            for ok in (True, False)
        ]


def _newest(session: Session, table: type[DurationRow | EventRow | AttemptRow]) -> int:
    return session.exec(select(func.max(table.id))).one() or 0


def _sums(value: ColumnElement[float] | Any, bounds: Sequence[float]) -> list[ColumnElement[Any]]:
    """Count, sum, and how many are at most each bound."""
    return [func.count(), func.sum(value), *(func.sum(case((value <= bound, 1), else_=0)) for bound in bounds)]
