"""Experiments: submit, find, claim, and the one function that changes a status."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, or_, update
from sqlalchemy.orm import aliased
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from service.domain.errors import ClaimLost, Conflict, NotFound
from service.domain.events import EventType
from service.domain.reasons import RULES, Reason, ReasonClass
from service.domain.status import ACTIVE, MOVES, Outcome, Status, StepName
from service.store import events, hosts, loads
from service.store.hosts import Lease
from service.store.tables import DependencyRow, ExperimentRow, HostRow, LogRow, utc_now

MAX_ID = 2**31

OTHER = aliased(ExperimentRow)
"""The experiment that another one waits for."""

HOPELESS = frozenset({ReasonClass.CONFIG, ReasonClass.OOM})
"""Classes of reasons that lie in the configuration, unless their rule says to try again."""

ORDER = (col(ExperimentRow.priority).desc(), col(ExperimentRow.rank), col(ExperimentRow.id))
"""In which experiments are chosen."""


def get(session: Session, experiment_id: int) -> ExperimentRow:
    """One experiment, or NotFound."""
    row = session.get(ExperimentRow, experiment_id)
    if row is None:
        raise NotFound(f"experiment {experiment_id} does not exist", "there is no experiment of that id", "see `expctl queue`")
    return row


def by_id(session: Session, experiment_id: int) -> ExperimentRow | None:
    """None also for a number that no database takes for an id."""
    return session.get(ExperimentRow, experiment_id) if 0 < experiment_id < MAX_ID else None


def host_name(session: Session, row: ExperimentRow) -> str:
    """The name of an experiment's host."""
    host = session.get(HostRow, row.host_id)
    return host.name if host is not None else "?"


def listing(
    session: Session, *, statuses: Iterable[str] | None = None, host: str | None = None, limit: int = 100, before: int | None = None
) -> list[ExperimentRow]:
    """Newest first; `before` is the id to go on from."""
    query = select(ExperimentRow).order_by(col(ExperimentRow.id).desc()).limit(limit)
    if statuses:
        query = query.where(col(ExperimentRow.status).in_(list(statuses)))
    if host is not None:
        query = query.where(ExperimentRow.host_id == hosts.by_name(session, host).id)
    if before is not None:
        query = query.where(col(ExperimentRow.id) < before)
    return list(session.exec(query))


def named(session: Session, name: str, *, succeeded: bool = False) -> ExperimentRow | None:
    """The latest experiment of that name; a baseline that is loaded once more has its name, and is not meant."""
    query = select(ExperimentRow).where(ExperimentRow.name == name, col(ExperimentRow.recheck_of).is_(None))
    query = query.order_by(col(ExperimentRow.id).desc())
    if succeeded:
        query = query.where(ExperimentRow.outcome == Outcome.SUCCEEDED)
    return session.exec(query.limit(1)).one_or_none()


def take_next(
    session: Session, lease: Lease, shift_id: int, *, guests: bool | None = None, among: Sequence[int] | None = None
) -> tuple[ExperimentRow, bool] | None:
    """The experiment this lease's holder works on next, and whether it is adopted from another worker.

    One that is already active on the host comes first; it is stamped with the new fence, so that a former holder's writes
    fail. Else the next due one by priority, then age; `guests` picks those that need production (endpoints), or the others.
    """
    hosts.guard(session, lease)
    active = session.exec(
        select(ExperimentRow).where(ExperimentRow.host_id == lease.host_id, col(ExperimentRow.status).in_(list(ACTIVE))).with_for_update()
    ).one_or_none()
    if active is not None:
        adopted = active.fence != lease.fence
        active.recoveries += int(adopted)
        active.fence, active.shift_id = lease.fence, shift_id
        session.add(active)
        return active, adopted
    picked = [] if among is None else [col(ExperimentRow.id).in_(among)]
    query = _next_due(lease.host_id, guests).where(*picked).limit(1).with_for_update(skip_locked=True)
    due = session.exec(query).one_or_none()
    if due is None:
        return None
    values = {"fence": lease.fence, "shift_id": shift_id, "started_at": utc_now()}
    move_status(session, due.id or 0, {Status.QUEUED}, Status.RUNNING, values)
    session.refresh(due)
    events.emit(
        session, EventType.EXPERIMENT_STARTED, f"worker:{lease.owner}", host=lease.host, experiment_id=due.id, data={"attempt": due.attempt}
    )
    return due, False


def _due() -> list[ColumnElement[bool]]:
    """A queued experiment is due when its time has come, all it waits for has succeeded, and its host takes new ones."""
    waits = (
        select(DependencyRow.experiment_id)
        .join(OTHER, col(OTHER.id) == DependencyRow.after_id)
        .where(DependencyRow.experiment_id == ExperimentRow.id, or_(col(OTHER.outcome).is_(None), col(OTHER.outcome) != Outcome.SUCCEEDED))
        .correlate(ExperimentRow)
        .exists()
    )
    shut = or_(col(HostRow.paused).is_(True), col(HostRow.blocked).is_not(None))
    paused = select(HostRow.id).where(HostRow.id == ExperimentRow.host_id, shut).correlate(ExperimentRow).exists()
    early = and_(col(ExperimentRow.not_before).is_not(None), col(ExperimentRow.not_before) > utc_now())
    return [col(ExperimentRow.status) == Status.QUEUED, ~waits, ~paused, ~early]


def _kind(guests: bool | None) -> list[ColumnElement[bool]]:
    """Endpoints are guests of what serves already; everything else needs the host for itself."""
    if guests is None:
        return []
    kind = col(ExperimentRow.spec)["engine"]["kind"].as_string()
    return [kind == "endpoint" if guests else kind != "endpoint"]


def due_where(host_id: int, guests: bool | None) -> list[ColumnElement[bool]]:
    """What makes an experiment of a host due."""
    return [col(ExperimentRow.host_id) == host_id, *_due(), *_kind(guests)]


def _next_due(host_id: int, guests: bool | None) -> SelectOfScalar[ExperimentRow]:
    return select(ExperimentRow).where(*due_where(host_id, guests)).order_by(*ORDER)


def due(session: Session, host_id: int, *, guests: bool, limit: int = 100) -> list[ExperimentRow]:
    """Experiments of that kind that could start now, in the order in which they would."""
    return list(session.exec(_next_due(host_id, guests).limit(limit)))


def _fail_dependents(session: Session, experiment_id: int, actor: str) -> None:
    """What waits for an experiment that did not succeed can never run: it ends too, and so does what waits for that."""
    query = (
        select(ExperimentRow)
        .join(DependencyRow, col(DependencyRow.experiment_id) == ExperimentRow.id)
        .where(DependencyRow.after_id == experiment_id, col(ExperimentRow.status).in_([Status.QUEUED, Status.HELD]))
    )
    for row in session.exec(query).all():
        if row.recheck_of is not None and _has_another(session, row, experiment_id):
            continue
        end(session, row, Outcome.FAILED, Reason.DEPENDENCY_FAILED, f"experiment {experiment_id} did not succeed", actor)


def _has_another(session: Session, recheck: ExperimentRow, failed: int) -> bool:
    """Whether a baseline is still loaded once more for another candidate than the one that failed; then it waits for that one only."""
    others = (
        select(DependencyRow.after_id)
        .join(OTHER, col(OTHER.id) == DependencyRow.after_id)
        .where(DependencyRow.experiment_id == recheck.id, DependencyRow.after_id != failed)
        .where(or_(col(OTHER.outcome).is_(None), col(OTHER.outcome) == Outcome.SUCCEEDED))
    )
    if session.exec(others.limit(1)).first() is None:
        return False
    session.delete(session.get_one(DependencyRow, (recheck.id, failed)))
    return True


def end(session: Session, row: ExperimentRow, outcome: Outcome, reason: Reason, detail: str, actor: str) -> None:
    """End an experiment that waits, without any worker."""
    values = {"outcome": outcome, "reason": reason, "detail": detail, "finished_at": utc_now()}
    move_status(session, row.id or 0, {Status(row.status)}, Status.FINISHED, values)
    data = {"outcome": outcome, "reason": reason, "detail": detail}
    events.emit(session, EventType.EXPERIMENT_FINISHED, actor, host=host_name(session, row), experiment_id=row.id, data=data)
    _fail_dependents(session, row.id or 0, actor)


def move_status(
    session: Session, experiment_id: int, expected: set[Status], to: Status, values: dict[str, Any], fence: int | None = None
) -> None:
    """Change a status by compare-and-set. ClaimLost when the row is no longer as expected."""
    if any(to not in MOVES[status] for status in expected):
        raise Conflict(f"experiment {experiment_id} cannot become {to}", f"not allowed from {', '.join(sorted(expected))}")
    statement = update(ExperimentRow).where(col(ExperimentRow.id) == experiment_id, col(ExperimentRow.status).in_(list(expected)))
    if fence is not None:
        statement = statement.where(col(ExperimentRow.fence) == fence)
    statement = statement.values(status=to, **values).execution_options(synchronize_session=False)
    if session.execute(statement.returning(col(ExperimentRow.id))).one_or_none() is None:
        raise ClaimLost(f"experiment {experiment_id} is no longer {' or '.join(sorted(expected))} under this claim")


def finish(session: Session, lease: Lease, experiment_id: int, outcome: Outcome, reason: Reason | None, detail: str, evidence: str) -> None:
    """End an experiment this lease works on."""
    hosts.guard(session, lease)
    values = {"outcome": outcome, "reason": reason, "detail": detail, "evidence": evidence, "finished_at": utc_now()}
    move_status(session, experiment_id, {Status.RUNNING, Status.STOPPING}, Status.FINISHED, values, lease.fence)
    data = {"outcome": outcome, "reason": reason, "detail": detail}
    events.emit(session, EventType.EXPERIMENT_FINISHED, f"worker:{lease.owner}", host=lease.host, experiment_id=experiment_id, data=data)
    if outcome != Outcome.SUCCEEDED:
        _fail_dependents(session, experiment_id, f"worker:{lease.owner}")
    if reason is not None and RULES[reason].reason_class in HOPELESS and not RULES[reason].retry.times:
        _end_other_loads(session, get(session, experiment_id), RULES[reason].sentence, f"worker:{lease.owner}")


def _end_other_loads(session: Session, row: ExperimentRow, why: str, actor: str) -> None:
    """What one load has shown of its configuration, another need not show: that may take an hour of the night."""
    for other in loads.together(session, row):
        if other.status in {Status.QUEUED, Status.HELD}:
            detail = f"experiment {row.id}, a load of the same configuration, did not succeed: {why}"
            end(session, other, Outcome.FAILED, Reason.DEPENDENCY_FAILED, detail, actor)


def requeue(session: Session, lease: Lease, experiment_id: int, reason: Reason, detail: str) -> bool:
    """Give an experiment back to the queue for another attempt if the reason's rule allows one more."""
    hosts.guard(session, lease)
    row = get(session, experiment_id)
    rule = RULES[reason].retry
    if row.attempt > rule.times or row.status != Status.RUNNING:
        return False
    due = utc_now() + timedelta(seconds=rule.after_s)
    values: dict[str, Any] = {
        "attempt": row.attempt + 1,
        "step": None,
        "detail": detail,
        "progress": {},
        "fence": None,
        "started_at": None,
        "not_before": due,
    }
    move_status(session, experiment_id, {Status.RUNNING}, Status.QUEUED, values, lease.fence)
    data = {"reason": reason, "detail": detail, "attempt": row.attempt + 1}
    events.emit(session, EventType.EXPERIMENT_REQUEUED, f"worker:{lease.owner}", host=lease.host, experiment_id=experiment_id, data=data)
    return True


def cancel(session: Session, experiment_id: int, actor: str) -> ExperimentRow:
    """Ask for an end. A waiting experiment ends at once; a running one becomes `stopping` and its worker ends it."""
    row = get(session, experiment_id)
    if row.status == Status.FINISHED:
        raise Conflict(f"experiment {experiment_id} has already finished", f"outcome: {row.outcome}", "nothing is left to cancel")
    if row.status == Status.STOPPING:
        return row
    host = host_name(session, row)
    events.emit(session, EventType.EXPERIMENT_CANCEL_REQUESTED, actor, host=host, experiment_id=row.id)
    if row.status == Status.RUNNING:
        move_status(session, experiment_id, {Status.RUNNING}, Status.STOPPING, {})
    else:
        end(session, row, Outcome.CANCELLED, Reason.CANCELLED_BY_USER, f"by {actor}", actor)
    session.refresh(row)
    return row


def kept(session: Session, ids: Sequence[int]) -> set[int]:
    """Those of the ids that are not finished, or whose log is still kept: pruning takes it."""
    logged = select(LogRow.id).where(LogRow.experiment_id == ExperimentRow.id).correlate(ExperimentRow).exists()
    query = select(ExperimentRow.id).where(col(ExperimentRow.id).in_(ids), or_(col(ExperimentRow.status) != Status.FINISHED, logged))
    return {one for one in session.exec(query).all() if one is not None}


def status_of(session: Session, experiment_id: int) -> Status:
    """Only the status, for the worker's poll."""
    return Status(session.exec(select(ExperimentRow.status).where(ExperimentRow.id == experiment_id)).one())


def note_step(session: Session, lease: Lease, experiment_id: int, step: StepName) -> None:
    """Remember the step an experiment is at."""
    _stamp(session, lease, experiment_id, {"step": step})


def note_progress(session: Session, lease: Lease, experiment_id: int, progress: dict[str, Any]) -> None:
    """Remember the latest progress."""
    _stamp(session, lease, experiment_id, {"progress": progress})


def add_facts(session: Session, lease: Lease, experiment_id: int, facts: dict[str, Any]) -> None:
    """Add provenance. A fork's model is known only now: the unit that it forks names it."""
    row = get(session, experiment_id)
    named = {} if row.served_model or not facts.get("served_model") else {"served_model": str(facts["served_model"])}
    _stamp(session, lease, experiment_id, {"facts": row.facts | facts, **named})


def _stamp(session: Session, lease: Lease, experiment_id: int, values: dict[str, Any]) -> None:
    hosts.guard(session, lease)
    statement = (
        update(ExperimentRow)
        .where(col(ExperimentRow.id) == experiment_id, col(ExperimentRow.fence) == lease.fence, col(ExperimentRow.status).in_(list(ACTIVE)))
        .values(**values)
        .returning(col(ExperimentRow.id))
        .execution_options(synchronize_session=False)
    )
    if session.execute(statement).one_or_none() is None:
        raise ClaimLost(f"experiment {experiment_id} is no longer ours")
