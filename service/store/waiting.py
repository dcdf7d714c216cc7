"""What waits on a host: only the columns by which it is chosen and foreseen, since a spec may be large and a queue long."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement
from sqlalchemy import select as select_columns
from sqlmodel import Session, col, or_, select

from service.domain.status import ACTIVE, Outcome, Status
from service.store import experiments
from service.store.history import Config
from service.store.tables import DependencyRow, ExperimentRow


class Queued(NamedTuple):
    """One queued experiment."""

    id: int
    config: Config
    not_before: datetime | None

    @property
    def guest(self) -> bool:
        """It measures what serves already."""
        return self.config.kind == "endpoint"


def queued(session: Session, host_id: int) -> list[Queued]:
    """Every queued experiment of a host, in the order in which they are chosen."""
    return _read(session, [col(ExperimentRow.host_id) == host_id, col(ExperimentRow.status) == Status.QUEUED])


def due(session: Session, host_id: int, *, guests: bool) -> list[Queued]:
    """Those that could start now, by the worker's own rule."""
    return _read(session, experiments.due_where(host_id, guests))


def _read(session: Session, where: list[ColumnElement[bool]]) -> list[Queued]:
    shown = (ExperimentRow.id, ExperimentRow.spec_hash, ExperimentRow.served_model, ExperimentRow.not_before)
    query = select_columns(*(col(one) for one in shown)).where(*where).order_by(*experiments.ORDER)
    # Plain rows: the session has nothing to add to them, and its way takes as long again.
    rows: Sequence[Any] = session.connection().execute(query).all()
    # Equal specs are read once: reading JSON takes the database longer than all else.
    inside = _inside(session, {spec: one for one, spec, *_ in rows})
    configs = {(spec, served): inside[spec]._replace(served_model=served) for spec, served in {row[1:3] for row in rows}}
    return [Queued(one, configs[spec, served], not_before) for one, spec, served, not_before in rows]


def _inside(session: Session, example: dict[str, int]) -> dict[str, Config]:
    """What each spec would load and run, by its hash; `example` has the id of an experiment with it."""
    spec = col(ExperimentRow.spec)
    kind, repeat = spec["engine"]["kind"].as_string(), spec["bench"]["repeat"].as_integer()
    shown = (col(ExperimentRow.spec_hash), col(ExperimentRow.engine_hash), col(ExperimentRow.bench_hash), kind, repeat)
    query = select_columns(*shown).where(col(ExperimentRow.id).in_(example.values()))
    return {digest: Config(engine, "", str(kind), bench, repeat) for digest, engine, bench, kind, repeat in session.execute(query)}


def unmet(session: Session, host_id: int) -> dict[int, frozenset[int]]:
    """What the queued experiments of a host wait for that has not succeeded."""
    other = experiments.OTHER
    query = (
        select(DependencyRow.experiment_id, DependencyRow.after_id)
        .join(ExperimentRow, col(ExperimentRow.id) == DependencyRow.experiment_id)
        .join(other, col(other.id) == DependencyRow.after_id)
        .where(
            ExperimentRow.host_id == host_id,
            col(ExperimentRow.status) == Status.QUEUED,
            or_(col(other.outcome).is_(None), col(other.outcome) != Outcome.SUCCEEDED),
        )
    )
    found: dict[int, set[int]] = defaultdict(set)
    for one, after in session.exec(query):
        found[one].add(after)
    return {one: frozenset(after) for one, after in found.items()}


def after(session: Session, ids: list[int]) -> dict[int, dict[int, str | None]]:
    """What each of these experiments was submitted to wait for, with its outcome; only those that wait for any."""
    query = (
        select(DependencyRow.experiment_id, DependencyRow.after_id, ExperimentRow.outcome)
        .join(ExperimentRow, col(ExperimentRow.id) == DependencyRow.after_id)
        .where(col(DependencyRow.experiment_id).in_(ids))
    )
    found: dict[int, dict[int, str | None]] = defaultdict(dict)
    for one, other, outcome in session.exec(query):
        found[one][other] = outcome
    return dict(found)


def places(session: Session, host_id: int) -> dict[int, int]:
    """How many experiments of a host run or wait before each that is queued there."""
    running = select(ExperimentRow.id).where(ExperimentRow.host_id == host_id, col(ExperimentRow.status).in_(list(ACTIVE)))
    first = int(session.exec(running).first() is not None)
    query = select(ExperimentRow.id).where(ExperimentRow.host_id == host_id, col(ExperimentRow.status) == Status.QUEUED)
    ordered = session.exec(query.order_by(*experiments.ORDER))
    return {one: place for place, one in enumerate(ordered, first) if one is not None}
