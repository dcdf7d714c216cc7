"""Experiments that are loads of one configuration, and baselines that are loaded once more."""

from __future__ import annotations

from collections.abc import Iterable

from sqlmodel import Session, col, or_, select

from service.domain.status import Outcome, Status
from service.store.tables import DependencyRow, ExperimentRow


def first_of(row: ExperimentRow) -> int:
    """Id of the first load of its configuration in its submission, which all of them have in common."""
    return row.load_of or row.id or 0


def together(session: Session, row: ExperimentRow) -> list[ExperimentRow]:
    """Every load of its configuration in its submission, itself and retries among them, oldest first."""
    first = first_of(row)
    same = or_(ExperimentRow.id == first, ExperimentRow.load_of == first)
    return list(session.exec(select(ExperimentRow).where(same).order_by(col(ExperimentRow.id))))


def current(session: Session, row: ExperimentRow) -> list[ExperimentRow]:
    """The same without those that were tried again."""
    return list({one.load: one for one in together(session, row)}.values())


def rechecks(session: Session, base: ExperimentRow, candidates: Iterable[ExperimentRow]) -> list[ExperimentRow]:
    """Experiments that load the baseline once more after one of these candidates."""
    of_base = col(ExperimentRow.recheck_of).in_([one.id for one in together(session, base)])
    after = select(DependencyRow.experiment_id).where(col(DependencyRow.after_id).in_([one.id for one in candidates]))
    query = select(ExperimentRow).where(of_base, col(ExperimentRow.id).in_(after))
    return list(session.exec(query.order_by(col(ExperimentRow.id))))


def waited_for(session: Session, row: ExperimentRow) -> list[ExperimentRow]:
    """The candidates that a recheck comes after."""
    query = select(ExperimentRow).join(DependencyRow, col(DependencyRow.after_id) == ExperimentRow.id)
    return list(session.exec(query.where(DependencyRow.experiment_id == row.id).order_by(col(ExperimentRow.id))))


def may_succeed(row: ExperimentRow) -> bool:
    """Whether it has succeeded, or still can."""
    return row.status != Status.FINISHED or row.outcome == Outcome.SUCCEEDED
