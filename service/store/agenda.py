"""What there is to do on a host at this moment, and what stands in the way."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlmodel import Session, col, select

from service.domain.curfew import Opening, fits
from service.domain.eta import Spread
from service.domain.host_config import HostConfig
from service.domain.host_requests import RequestStatus
from service.domain.status import ACTIVE
from service.store import experiments, history, hosts, shifts, waiting
from service.store.tables import ExperimentRow, HostRequestRow, HostRow


@dataclass(frozen=True)
class Agenda:
    """What waits on a host."""

    requests: bool
    """Somebody wants something done on the host."""
    shift_open: bool
    active: bool
    """An experiment waits to be adopted."""
    guests: bool
    """An endpoint is due: it needs production as it is."""
    units: bool
    """An experiment is due that needs the host for itself, and the host may be had."""

    @property
    def anything(self) -> bool:
        """Whether a worker should come."""
        return self.requests or self.shift_open or self.active or self.guests or self.units


def of(session: Session, host: str, now: datetime) -> Agenda:
    """What waits on a host at `now`."""
    row = hosts.by_name(session, host)
    asked = select(HostRequestRow.id).where(HostRequestRow.host_id == row.id, HostRequestRow.status != RequestStatus.FINISHED)
    active = select(ExperimentRow.id).where(ExperimentRow.host_id == row.id, col(ExperimentRow.status).in_(list(ACTIVE)))
    return Agenda(
        requests=session.exec(asked.limit(1)).first() is not None,
        shift_open=shifts.current(session, row.id or 0) is not None,
        active=session.exec(active.limit(1)).first() is not None,
        guests=bool(experiments.due(session, row.id or 0, guests=True, limit=1)),
        units=may_open(row, now) and _any_fits(session, row, now),
    )


def _any_fits(session: Session, row: HostRow, now: datetime) -> bool:
    """Asked twice a second by idle workers, so a queue that needs no estimates is not read whole."""
    if curfew(session, row, now) is None:
        return bool(experiments.due(session, row.id or 0, guests=False, limit=1))
    return bool(fitting(session, row, now))


def fitting(session: Session, row: HostRow, now: datetime) -> list[int]:
    """Ids of the due experiments that need the host for themselves and, by what earlier ones took, end before the curfew.

    One without any history may try: it is cut and queued again where it does not end in time.
    """
    end = curfew(session, row, now)
    return [one.id for one, takes in _due(session, row, end) if fits(now, takes and takes.p90, end)]


def tonight(session: Session, row: HostRow, now: datetime) -> list[int]:
    """Ids of those that would run one after the other before the curfew, in order.

    What has no history takes no time here: rather one too many is named than one too few.
    """
    end = curfew(session, row, now)
    found: list[int] = []
    for one, takes in _due(session, row, end):
        if fits(now, takes and takes.p90, end):
            found.append(one.id)
            now += timedelta(seconds=takes.p50 if takes else 0.0)
    return found


def _due(session: Session, row: HostRow, end: datetime | None) -> list[tuple[waiting.Queued, Spread | None]]:
    """What is due and needs the host for itself, with what it takes by history; that is asked for only where there is an end."""
    due = waiting.due(session, row.id or 0, guests=False)
    known = history.estimates(session, row.id or 0, {one.config for one in due}) if end is not None and due else {}
    return [(one, known[one.config].takes if one.config in known else None) for one in due]


def opening(session: Session, row: HostRow) -> Opening:
    """When the host may be had, and until when."""
    config = HostConfig.model_validate(row.config)
    return Opening(bool(config.park), config.opening, row.open_by is not None, restore_s(session, row.id or 0))


def may_open(row: HostRow, now: datetime) -> bool:
    """Whether the host may be had: nothing serves there by day, the window is open, or an admin said so."""
    config = HostConfig.model_validate(row.config)
    return Opening(bool(config.park), config.opening, row.open_by is not None, 0.0).may_open(now)


def curfew(session: Session, row: HostRow, now: datetime) -> datetime | None:
    """When experiments must have ended so that production serves again by the end of the window.

    None: no end is set, since nothing serves there by day, or an admin opened the host outside its window.
    """
    return opening(session, row).curfew(now)


def restore_s(session: Session, host_id: int) -> float:
    """How long production takes to serve again: p90 of this host's latest shifts, or a guess."""
    return history.of_shift(session, host_id, "restore", history.ASSUMED_RESTORE_S).p90
