"""What a message needs to know, from the rows of an experiment, a host, a shift."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sqlalchemy import func
from sqlmodel import Session, col, select

from service.domain.comparison import Comparison, compare
from service.domain.errors import ExpctlError
from service.domain.experiment_messages import LOG_LINES, ExperimentFacts
from service.domain.host_messages import HitExperiment, HostFacts
from service.domain.loads import load_label
from service.domain.reasons import Reason
from service.domain.status import ACTIVE, Outcome, ShiftPhase, Status
from service.domain.wording import status_text
from service.store import experiments, repeats, results, shifts
from service.store.arms import Arms
from service.store.tables import BaselineRow, ExperimentRow, HostRow, LogRow

LINE_LENGTH = 300
PIECES = 5
"""Pieces of the log that are looked through for its last lines."""

_OUT = {
    ShiftPhase.PARKING: "production is being parked",
    ShiftPhase.PARKED: "production is parked",
    ShiftPhase.RESTORING: "production is being brought back",
}


def baseline_of(session: Session, row: ExperimentRow) -> int | None:
    """What an experiment is compared with: the one its file names, else the pinned one of its model on its host; never itself."""
    found = row.baseline_id
    wanted = row.spec.get("baseline")
    if found is None and isinstance(wanted, str):
        other = experiments.named(session, wanted, succeeded=True)
        found = other.id if other is not None else None
    if found is None and wanted is None:
        pinned = session.get(BaselineRow, (row.host_id, row.served_model))
        found = pinned.experiment_id if pinned is not None else None
    return None if found == row.id else found


def compared(session: Session, row: ExperimentRow) -> tuple[Comparison | None, str]:
    """The comparison with the baseline, or why there is none; both empty where no baseline is meant."""
    base = baseline_of(session, row)
    if base is None or row.outcome != Outcome.SUCCEEDED or row.spec["engine"]["kind"] == "command":
        return None, ""
    try:
        pair = Arms(session).pair(experiments.get(session, base), row)
        return compare(*pair, repeats.between_loads(session, row.host_id)), ""
    except ExpctlError as error:
        return None, f"Not compared with {base}: {error.why or error.what}."


def experiment_facts(
    session: Session, row: ExperimentRow, *, measured: bool = False, log: bool = False, onward: bool = True
) -> ExperimentFacts:
    """What is known of an experiment; `measured` and `log` add what costs a longer look, `onward` what its host does next."""
    comparison, why_not = compared(session, row) if measured else (None, "")
    host = session.get(HostRow, row.host_id)
    label = load_label(row.load, row.spec.get("repeat_load", 1), row.recheck_of)
    return ExperimentFacts(
        id=row.id or 0,
        name=f"{row.name} ({label})" if label else row.name,
        host=host.name if host is not None else "?",
        created_by=row.created_by,
        attempt=row.attempt,
        step=row.step,
        outcome=Outcome(row.outcome) if row.outcome else None,
        reason=Reason(row.reason) if row.reason else None,
        detail=row.detail,
        seconds=(row.finished_at - row.started_at).total_seconds() if row.finished_at and row.started_at else None,
        phases=results.phases(session, row.id or 0, row.attempt) if measured else [],
        comparison=comparison,
        not_compared=why_not,
        last_lines=last_lines(session, row.id or 0) if log else [],
        next=_next(session, row.host_id) if onward else None,
        shut=_shut(host),
    )


def last_lines(session: Session, experiment_id: int, count: int = LOG_LINES) -> list[str]:
    """The last lines of an experiment's log that say something."""
    query = select(LogRow.text).where(LogRow.experiment_id == experiment_id).order_by(col(LogRow.id).desc()).limit(PIECES)
    pieces = list(session.exec(query))
    lines = [line.rstrip()[:LINE_LENGTH] for piece in reversed(pieces) for line in piece.split("\n") if line.strip()]
    return lines[-count:]


def _next(session: Session, host_id: int) -> tuple[int, str] | None:
    running = session.exec(
        select(ExperimentRow).where(ExperimentRow.host_id == host_id, col(ExperimentRow.status).in_(list(ACTIVE)))
    ).first()
    rows = [running] if running else [row for guests in (False, True) for row in experiments.due(session, host_id, guests=guests, limit=1)]
    return (rows[0].id or 0, rows[0].name) if rows else None


def _shut(host: HostRow | None) -> str:
    if host is None:
        return ""
    return f"it is blocked: {host.blocked}" if host.blocked else "it is paused" if host.paused else ""


def host_facts(session: Session, name: str, ids: Collection[int] = ()) -> HostFacts:
    """What is known of a host; `ids`: experiments that an outage met, besides those that are running there."""
    host = session.exec(select(HostRow).where(HostRow.name == name)).one_or_none()
    if host is None:
        return HostFacts(name)
    rows = session.exec(select(ExperimentRow).where(col(ExperimentRow.id).in_(ids)).order_by(col(ExperimentRow.id))).all()
    queued = select(func.count()).select_from(ExperimentRow).where(ExperimentRow.host_id == host.id, ExperimentRow.status == Status.QUEUED)
    shift = shifts.current(session, host.id or 0)
    text = _OUT.get(ShiftPhase(shift.phase), "") if shift is not None and host.config.get("park") else ""
    return HostFacts(name, hit=_hit(rows), waiting=session.exec(queued).one(), production=text, needs_person=bool(text))


def _hit(rows: Iterable[ExperimentRow]) -> list[HitExperiment]:
    return [
        HitExperiment(row.id or 0, row.name, status_text(Status(row.status), row.step, row.outcome, row.reason, row.spec["engine"]["kind"]))
        for row in rows
    ]


def running_on(session: Session, name: str) -> list[int]:
    """Ids of what is running on a host."""
    query = select(ExperimentRow.id).join(HostRow, col(HostRow.id) == ExperimentRow.host_id)
    found = session.exec(query.where(HostRow.name == name, col(ExperimentRow.status).in_(list(ACTIVE))))
    return [one for one in found if one is not None]


def names_of(session: Session, ids: Collection[int]) -> list[str]:
    """Every notifier that one of these experiments names."""
    rows = session.exec(select(ExperimentRow).where(col(ExperimentRow.id).in_(ids)))
    return list(dict.fromkeys(str(one) for row in rows for one in row.spec.get("notify") or ()))
