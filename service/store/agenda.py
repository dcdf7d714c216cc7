"""What there is to do on a host at this moment, and what stands in the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlmodel import Session, col, select

from service.domain.host_config import HostConfig
from service.domain.host_requests import RequestStatus
from service.domain.status import ACTIVE
from service.store import experiments, history, hosts, shifts
from service.store.tables import ExperimentRow, HostRequestRow, HostRow

ASSUMED_RESTORE_S = 900.0
"""How long production takes to serve again, until a shift or a rehearsal has shown it."""


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
        units=may_open(row, now) and any(fitting(session, row, now)),
    )


def fitting(session: Session, row: HostRow, now: datetime) -> Iterator[int]:
    """Ids of the due experiments that need the host for themselves and, by what earlier ones took, end before the curfew.

    One without any history may try: it is cut and queued again where it does not end in time. Each costs a look into the
    history, so whoever wants to know only whether there is one looks no further.
    """
    end = curfew(session, row, now)
    for one in experiments.due(session, row.id or 0, guests=False):
        if end is None or now + timedelta(seconds=history.expected_s(session, one) or 0.0) < end:
            yield one.id or 0


def may_open(row: HostRow, now: datetime) -> bool:
    """Whether the host may be had: nothing serves there by day, the window is open, or an admin said so."""
    config = HostConfig.model_validate(row.config)
    if not config.park or row.open_by is not None:
        return True
    return config.opening is not None and config.opening.closes_at(now) is not None


def curfew(session: Session, row: HostRow, now: datetime) -> datetime | None:
    """When experiments must have ended so that production serves again by the end of the window.

    None: no end is set, since nothing serves there by day, or an admin opened the host outside its window.
    """
    config = HostConfig.model_validate(row.config)
    if not config.park or config.opening is None:
        return None
    closes = config.opening.closes_at(now)
    if closes is None:
        # The window is over. An admin's shift has no end of its own; any other one is late.
        return None if row.open_by is not None else now
    return closes - timedelta(seconds=restore_s(session, row.id or 0))


def restore_s(session: Session, host_id: int) -> float:
    """How long production takes to serve again: p90 of this host's latest shifts, or a guess."""
    return history.p90(shifts.restore_times(session, host_id)) or ASSUMED_RESTORE_S
