"""What the metrics tell, counted by the database at the moment they are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlalchemy import func
from sqlalchemy import select as select_columns
from sqlmodel import Session, col, select

from service.domain.status import ShiftPhase
from service.store import hosts, singletons, workers
from service.store.tables import DeliveryRow, ExperimentRow, HostRow, NotifierRow, ShiftRow

STEWARD = "steward"


class Experiments(NamedTuple):
    """How many experiments are alike. Outcome and reason are empty where they have none."""

    host: str
    status: str
    outcome: str
    reason: str
    engine: str
    number: int


class Undelivered(NamedTuple):
    """How many messages have not arrived."""

    notifier: str
    status: str
    """pending: it is tried; dead: it was given up."""
    number: int


@dataclass(frozen=True)
class HostFigures:
    """One host just now."""

    name: str
    paused: bool
    blocked: bool
    not_restored: bool
    """Production did not serve again when a shift ended."""
    parked: bool
    """A shift has taken production down, or is about to, and has not brought it back yet."""
    reachable: bool
    worker_age_s: float | None
    """Since a worker of it was last seen; None where there is none."""
    claims_lost: int


@dataclass(frozen=True)
class Figures:
    """Everything but what `Tally` remembers."""

    experiments: list[Experiments] = field(default_factory=list)
    hosts: list[HostFigures] = field(default_factory=list)
    undelivered: list[Undelivered] = field(default_factory=list)
    steward: bool = False
    """Somebody holds the steward's lease."""


def figures(session: Session) -> Figures:
    """All of them, of one moment."""
    steward = singletons.holder(session, STEWARD)
    rows = hosts.every(session)
    return Figures(
        experiments=_experiments(session, {row.id: row.name for row in rows}),
        hosts=_hosts(session, rows),
        undelivered=_undelivered(session),
        steward=steward is not None and steward.lease_left_s >= 0,
    )


def _experiments(session: Session, names: Mapping[int | None, str]) -> list[Experiments]:
    # An index holds exactly these columns, so that thousands of finished experiments cost milliseconds.
    alike = (ExperimentRow.host_id, ExperimentRow.status, ExperimentRow.outcome, ExperimentRow.reason, ExperimentRow.engine_kind)
    query = select_columns(*map(col, alike), func.count()).group_by(*map(col, alike))
    return [
        Experiments(names[host_id], status, outcome or "", reason or "", engine, count)
        for host_id, status, outcome, reason, engine, count in session.execute(query)
    ]


def _hosts(session: Session, rows: Sequence[HostRow]) -> list[HostFigures]:
    ages: dict[str, float] = {}
    for one in workers.seen(session):
        ages[one.host] = min(one.age_s, ages.get(one.host, one.age_s))
    down = select(ShiftRow.host_id).where(col(ShiftRow.closed_at).is_(None), ShiftRow.phase != ShiftPhase.OPEN)
    parked = set(session.exec(down))
    return [_host(row, ages.get(row.name), parked=row.id in parked) for row in rows]


def _host(row: HostRow, age_s: float | None, *, parked: bool) -> HostFigures:
    return HostFigures(
        name=row.name,
        paused=row.paused,
        blocked=row.blocked is not None,
        not_restored=(row.blocked or "").startswith(hosts.NOT_RESTORED),
        # A host without production has shifts all the same.
        parked=parked and bool(row.config.get("park")),
        reachable=row.unreachable_since is None,
        worker_age_s=age_s,
        claims_lost=row.claims_lost,
    )


def _undelivered(session: Session) -> list[Undelivered]:
    query = (
        select(NotifierRow.name, DeliveryRow.status, func.count())
        .join(NotifierRow, col(NotifierRow.id) == DeliveryRow.notifier_id)
        .where(col(DeliveryRow.status).in_(["pending", "dead"]))
        .group_by(col(NotifierRow.name), col(DeliveryRow.status))
    )
    return [Undelivered(*row) for row in session.exec(query)]
