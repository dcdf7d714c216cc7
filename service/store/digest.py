"""When a night of a group of hosts is over, and what it brought."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import func, or_
from sqlmodel import Session, col, select

from service.domain.digest import NightFacts
from service.domain.events import EventType
from service.domain.figures import span
from service.domain.status import ACTIVE, Outcome, ShiftPhase, Status
from service.store import hostsettings, shifts
from service.store.tables import EventRow, ExperimentRow, HostRow, ShiftRow, StepRow
from service.store.telling import experiment_facts

NOT_FOR_LONG = timedelta(minutes=30)
"""A host that has been away for longer keeps nobody's digest waiting."""
TONIGHT = timedelta(hours=12)
"""What may start only later than this belongs to another night."""
LONGEST = timedelta(hours=24)
"""A digest never waits longer than this after the first ending that it tells of."""
MOST = 500
"""Endings that one digest looks at."""


@dataclass(frozen=True)
class Night:
    """Endings that no digest has told of, and the hosts they happened on."""

    hosts: list[HostRow]
    ended: list[EventRow]

    @property
    def last_event(self) -> int:
        """The newest ending."""
        return self.ended[-1].id or 0


def untold(session: Session, names: list[str], after: int) -> Night:
    """What ended on a group of hosts after an event; no names: every host. Only what had started counts as work."""
    query = select(HostRow).order_by(HostRow.name)
    group = list(session.exec(query.where(col(HostRow.name).in_(names)) if names else query))
    finished = (
        select(EventRow)
        .join(ExperimentRow, col(ExperimentRow.id) == EventRow.experiment_id)
        .where(EventRow.type == EventType.EXPERIMENT_FINISHED, col(EventRow.id) > after)
        .where(col(ExperimentRow.host_id).in_([row.id for row in group]), col(ExperimentRow.started_at).is_not(None))
        .order_by(col(EventRow.id))
        .limit(MOST)
    )
    return Night(group, list(session.exec(finished)))


def over(session: Session, night: Night, now: datetime) -> bool:
    """Whether the night is done: something ended, and no host of the group works, or will work on tonight."""
    if not night.ended:
        return False
    late = night.ended[0].at + LONGEST < now
    return late or not any(_busy(session, row, now) for row in night.hosts)


def _busy(session: Session, row: HostRow, now: datetime) -> bool:
    if row.unreachable_since is not None and row.unreachable_since + NOT_FOR_LONG < now:
        return False
    shift = shifts.current(session, row.id or 0)
    # One that cannot bring production back stays open until somebody helps it; that is no reason to tell nothing.
    if shift is not None and shift.parked.get("not_restored_at") is None:
        return True
    config = hostsettings.config_of(row)
    if config.park and config.opening is not None:
        return config.opening.closes_at(now) is not None
    return not (row.paused or row.blocked) and _waiting(session, [row.id or 0], now) > 0


def _waiting(session: Session, host_ids: list[int], now: datetime) -> int:
    soon = or_(col(ExperimentRow.not_before).is_(None), col(ExperimentRow.not_before) < now + TONIGHT)
    query = select(func.count()).select_from(ExperimentRow).where(col(ExperimentRow.host_id).in_(host_ids), soon)
    return session.exec(query.where(col(ExperimentRow.status).in_([Status.QUEUED, *ACTIVE]))).one()


def facts(session: Session, night: Night, now: datetime) -> NightFacts:
    """What the night brought."""
    ids = [event.experiment_id for event in night.ended]
    rows = list(session.exec(select(ExperimentRow).where(col(ExperimentRow.id).in_(ids)).order_by(col(ExperimentRow.id))))
    began = min((row.started_at for row in rows if row.started_at), default=night.ended[0].at)
    times = [(_seconds(row), _gpus(session, row)) for row in rows]
    known = [seconds * gpus for seconds, gpus in times if gpus is not None]
    worked = {row.host_id for row in rows}
    loads = select(func.count()).select_from(StepRow).where(col(StepRow.experiment_id).in_(ids), StepRow.name == "load")
    hosts = [host for host in night.hosts if host.id in worked]
    produced, waiting = standing(session, hosts, began, now)
    return NightFacts(
        hosts=[host.name for host in hosts],
        label=_evening(hosts, began),
        began=began,
        experiments=[experiment_facts(session, row, measured=row.outcome == Outcome.SUCCEEDED, onward=False) for row in rows],
        gpu_s=sum(known) if known else None,
        gpus_unknown=len(times) - len(known),
        loads=session.exec(loads.where(col(StepRow.finished_at).is_not(None))).one(),
        production=produced,
        waiting=waiting,
    )


def standing(session: Session, hosts: list[HostRow], began: datetime, now: datetime) -> tuple[list[tuple[str, str, bool]], int]:
    """What changes after the last ending: whether production is back on these hosts, and how many experiments still wait."""
    produced = [found for host in hosts if (found := _production(session, host, began)) is not None]
    return produced, _waiting(session, [host.id or 0 for host in hosts], now)


def _evening(hosts: list[HostRow], began: datetime) -> str:
    """The date of the evening on the clock of the first host: what runs before noon belongs to the night before."""
    zone = ZoneInfo(hostsettings.config_of(hosts[0]).time_zone) if hosts else began.tzinfo
    local = began.astimezone(zone)
    evening = local - timedelta(days=1) if local.hour < TONIGHT // timedelta(hours=1) else local
    return f"{evening.day} {evening:%b}"


def _seconds(row: ExperimentRow) -> float:
    return (row.finished_at - row.started_at).total_seconds() if row.finished_at and row.started_at else 0.0


def _gpus(session: Session, row: ExperimentRow) -> int | None:
    """How many GPUs an experiment had for itself; None where nobody looked, or where none could be read."""
    wanted = row.spec["engine"].get("gpus")
    if isinstance(wanted, list):
        return len(wanted)
    if wanted == "none" or row.facts.get("no_gpus"):
        return 0
    cleared = select(StepRow.evidence).where(StepRow.experiment_id == row.id, StepRow.name == "clear").order_by(col(StepRow.id).desc())
    found = row.facts.get("gpus") or (session.exec(cleared).first() or {}).get("gpus")
    return len(found) if isinstance(found, list) and found else None


def _production(session: Session, host: HostRow, began: datetime) -> tuple[str, str, bool] | None:
    """What is known of a host's production after its latest shift; None where nothing is parked there."""
    if not host.config.get("park"):
        return None
    query = select(ShiftRow).where(ShiftRow.host_id == host.id, or_(col(ShiftRow.closed_at).is_(None), col(ShiftRow.closed_at) >= began))
    shift = session.exec(query.order_by(col(ShiftRow.id).desc()).limit(1)).one_or_none()
    if shift is None:
        return host.name, "no shift was open, so production was not touched", True
    return host.name, *_words(shift, shift.parked)


def _words(shift: ShiftRow, parked: dict[str, Any]) -> tuple[str, bool]:
    units = ", ".join(str(unit["name"]) for unit in parked.get("units", ())) or "production"
    if parked.get("restored_at") is not None:
        return f"{units} serves again, proven with a token, after {span(parked.get('away_s'))}", True
    if parked.get("not_restored_at") is not None:
        return f"{units} is NOT RESTORED", False
    if shift.phase == ShiftPhase.CLOSED or parked.get("parked_at") is None:
        return f"{units} was not stopped", True
    return f"{units} is not back yet ({shift.phase})", False
