"""What people do to waiting experiments: hold, release, move, retry; pause a host; pin a baseline."""

from __future__ import annotations

from sqlalchemy import update
from sqlmodel import Session, col, select

from service.domain.errors import Conflict, NotReady, UsageError
from service.domain.events import EventType
from service.domain.status import Outcome, Status
from service.store import events, experiments, hosts, submission
from service.store.tables import BaselineRow, DependencyRow, ExperimentRow, HostRow


def hold(session: Session, experiment_id: int, actor: str, because: str = "") -> ExperimentRow:
    """Keep a queued experiment from starting until it is released."""
    row = experiments.get(session, experiment_id)
    if row.status == Status.HELD:
        return row
    if row.status != Status.QUEUED:
        raise Conflict(f"experiment {row.id} cannot be held", f"it is {row.status}", "only a queued experiment can be held")
    values = {"held_because": f"by {actor}" + (f": {because}" if because else "")}
    experiments.move_status(session, experiment_id, {Status.QUEUED}, Status.HELD, values)
    return _told(session, row, EventType.EXPERIMENT_HELD, actor, {"because": because})


def release(session: Session, experiment_id: int, actor: str) -> ExperimentRow:
    """Let a held experiment start when it is due."""
    row = experiments.get(session, experiment_id)
    if row.status == Status.QUEUED:
        return row
    if row.status != Status.HELD:
        raise Conflict(f"experiment {row.id} cannot be released", f"it is {row.status}", "only a held experiment can be released")
    experiments.move_status(session, experiment_id, {Status.HELD}, Status.QUEUED, {"held_because": None})
    return _told(session, row, EventType.EXPERIMENT_RELEASED, actor, {})


def _told(session: Session, row: ExperimentRow, kind: EventType, actor: str, data: dict[str, object]) -> ExperimentRow:
    session.refresh(row)
    events.emit(session, kind, actor, host=experiments.host_name(session, row), experiment_id=row.id, data=data)
    return row


def _waiting(session: Session, row: ExperimentRow) -> list[ExperimentRow]:
    """The other waiting experiments of its host, in the order they will run."""
    query = (
        select(ExperimentRow)
        .where(
            ExperimentRow.host_id == row.host_id, col(ExperimentRow.status).in_([Status.QUEUED, Status.HELD]), ExperimentRow.id != row.id
        )
        .order_by(col(ExperimentRow.priority).desc(), col(ExperimentRow.rank), col(ExperimentRow.id))
    )
    return list(session.exec(query))


def move(session: Session, experiment_id: int, actor: str, *, before: int | None = None, last: bool = False) -> ExperimentRow:
    """Move a waiting experiment: to the front, to the end, or right before another; its priority becomes that of its new place."""
    row = experiments.get(session, experiment_id)
    if row.status not in {Status.QUEUED, Status.HELD}:
        raise Conflict(f"experiment {row.id} cannot be moved", f"it is {row.status}", "only a waiting experiment has a place in the queue")
    others = _waiting(session, row)
    place = len(others) if last else 0
    if before is not None:
        place = next((index for index, other in enumerate(others) if other.id == before), -1)
        if place < 0:
            raise UsageError(f"{before} does not wait on the same host", "", "name an experiment from `expctl queue --status queued`")
    if others:
        neighbour = others[min(place, len(others) - 1)]
        row.priority = neighbour.priority
        above = others[place - 1] if 0 < place <= len(others) and others[place - 1].priority == row.priority else None
        below = others[place] if place < len(others) else None
        row.rank = _between(above.rank if above else None, below.rank if below else None)
        session.add(row)
        session.flush()
        _renumber(session, row)
    return _told(session, row, EventType.EXPERIMENT_MOVED, actor, {"before": before, "last": last})


def _between(above: float | None, below: float | None) -> float:
    if above is not None and below is not None:
        return (above + below) / 2
    if below is not None:
        return below - 1
    return (above or 0.0) + 1


def _renumber(session: Session, row: ExperimentRow) -> None:
    """Ranks that halving has brought to the same number get whole numbers again."""
    same = [other for other in (*_waiting(session, row), row) if other.priority == row.priority]
    if len({other.rank for other in same}) == len(same):
        return
    for number, other in enumerate(sorted(same, key=lambda one: (one.rank, one.id != row.id, one.id))):
        session.execute(update(ExperimentRow).where(col(ExperimentRow.id) == other.id).values(rank=float(number)))


def retry(session: Session, experiment_id: int, actor: str) -> ExperimentRow:
    """Queue the same again, as a new experiment that remembers which one it repeats; of several loads that one alone."""
    row = experiments.get(session, experiment_id)
    if row.status != Status.FINISHED:
        raise Conflict(f"experiment {row.id} has not finished", f"it is {row.status}", f"cancel it first: expctl cancel {row.id}")
    return submission.retry(session, row, actor)


def pause(session: Session, host: str, actor: str, *, paused: bool) -> HostRow:
    """Start nothing new on a host (what runs is finished), or go on. To go on also says that a block has been looked at."""
    row = hosts.by_name(session, host)
    if not paused and row.blocked is not None:
        if row.blocked.startswith(hosts.NOT_RESTORED):
            raise Conflict(f"{host} is still without its production", row.blocked, f"it goes on by itself once it serves; {_by_hand(host)}")
        events.emit(session, EventType.HOST_CLEARED, actor, host=host, data={"why": row.blocked})
        row.blocked = None
        session.add(row)
    if row.paused != paused:
        row.paused = paused
        session.add(row)
        events.emit(session, EventType.QUEUE_PAUSED if paused else EventType.QUEUE_RESUMED, actor, host=host)
    return row


def _by_hand(host: str) -> str:
    return f"see `expctl host show {host}`, and the journal of its units"


def pin_baseline(session: Session, experiment_id: int, actor: str) -> BaselineRow:
    """Make a successful experiment the baseline of its model on its host."""
    row = experiments.get(session, experiment_id)
    if row.outcome != Outcome.SUCCEEDED:
        why = f"it is {row.outcome or row.status}"
        raise NotReady(f"experiment {row.id} cannot be a baseline", why, "only a successful measurement can be compared with")
    if row.engine_kind == "command":
        raise NotReady(f"experiment {row.id} cannot be a baseline", "a command measures nothing", "pin one that was measured")
    found = session.get(BaselineRow, (row.host_id, row.served_model))
    pinned = found or BaselineRow(host_id=row.host_id, served_model=row.served_model, experiment_id=experiment_id)
    pinned.experiment_id = experiment_id
    session.add(pinned)
    session.flush()
    _told(session, row, EventType.BASELINE_PINNED, actor, {"served_model": row.served_model})
    return pinned


def unpin_baseline(session: Session, host: str, served_model: str, actor: str) -> bool:
    """Forget a pinned baseline; False where none was pinned."""
    found = session.get(BaselineRow, (hosts.by_name(session, host).id, served_model))
    if found is None:
        return False
    session.delete(found)
    data = {"served_model": served_model}
    events.emit(session, EventType.BASELINE_UNPINNED, actor, host=host, experiment_id=found.experiment_id, data=data)
    return True


def baselines(session: Session) -> list[BaselineRow]:
    """Every pinned baseline."""
    return list(session.exec(select(BaselineRow).order_by(col(BaselineRow.host_id), col(BaselineRow.served_model))))


def dependencies(session: Session, experiment_id: int) -> list[int]:
    """What an experiment waits for."""
    query = select(DependencyRow.after_id).where(DependencyRow.experiment_id == experiment_id).order_by(col(DependencyRow.after_id))
    return list(session.exec(query))
