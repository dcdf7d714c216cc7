"""What each host did over a stretch of time: experiments with their steps, and while production did not serve."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from sqlmodel import Session, col, select

from service.store import board, hosts
from service.store.tables import EventRow, ExperimentRow, HostRow, ShiftRow, StepRow


@dataclass(frozen=True)
class Parked:
    """Production did not serve between these moments."""

    parked_at: datetime
    restored_at: datetime | None
    """None: it does not yet."""


@dataclass(frozen=True)
class Lane:
    """One host."""

    host: HostRow
    experiments: list[ExperimentRow] = field(default_factory=list)
    """In the order in which they started."""
    parked: list[Parked] = field(default_factory=list)


@dataclass(frozen=True)
class Timeline:
    """All hosts, and the steps of every experiment, whichever its attempt."""

    lanes: list[Lane]
    steps: dict[int, list[StepRow]]
    left_out: int = 0
    """How many more there were than were asked for."""


def timeline(session: Session, since: datetime, until: datetime, host: str | None = None, *, most: int = board.MOST) -> Timeline:
    """What ran between two moments, at most so many: the latest are kept. NotFound for a host that is not known."""
    rows = [
        row
        for row in board.touched(session, board.since(session, since))
        if (row.finished_at is None or row.finished_at > since) and row.started_at is not None and row.started_at < until
    ]
    rows.sort(key=lambda row: (row.started_at or since, row.id or 0))
    left_out, rows = max(0, len(rows) - most), rows[-most:]
    places = [hosts.by_name(session, host)] if host is not None else hosts.every(session)
    shifts = board.shifts_since(session, since)
    lanes = [Lane(place, [row for row in rows if row.host_id == place.id], _parked(shifts, place, until)) for place in places]
    return Timeline(lanes, board.steps_of(session, [row.id or 0 for lane in lanes for row in lane.experiments]), left_out)


def _parked(shifts: list[ShiftRow], host: HostRow, until: datetime) -> list[Parked]:
    found = []
    for shift in shifts:
        parked, restored = _noted(shift, "parked_at"), _noted(shift, "restored_at")
        if shift.host_id == host.id and parked is not None and parked < until:
            found.append(Parked(parked, restored or shift.closed_at))
    return found


def _noted(shift: ShiftRow, key: str) -> datetime | None:
    at = shift.parked.get(key)
    return None if at is None else datetime.fromtimestamp(at, UTC)


@dataclass(frozen=True)
class Endings:
    """What ended between two moments."""

    events: list[EventRow]
    """Oldest first."""
    rows: list[ExperimentRow]
    """The experiments, in that order."""

    def worked(self) -> list[EventRow]:
        """The endings of what had started: only that counts as work."""
        started = {row.id for row in self.rows if row.started_at is not None}
        return [event for event in self.events if event.experiment_id in started]


def endings(session: Session, since: datetime, until: datetime, host: str | None = None) -> Endings:
    """What ended, everywhere or on one host, bounded as `board` is."""
    found = board.finishes(session, board.since(session, since), until)
    events = [event for event in found if host is None or event.host == host]
    ids = list(dict.fromkeys(event.experiment_id for event in events))
    known = {row.id: row for row in session.exec(select(ExperimentRow).where(col(ExperimentRow.id).in_(ids)))}
    return Endings(events, [known[one] for one in ids if one in known])
