"""The night of one host: when each experiment that runs or waits is foreseen to start and to end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from sqlmodel import Session, col, select

from service.domain.eta_wording import Basis, Reader, night_text, running_text, waiting_text
from service.domain.host_config import HostConfig
from service.domain.night import Active, HostState, Slot, Waiting, foresee
from service.domain.status import ACTIVE, ShiftPhase
from service.store import agenda, history, hosts, progressing, shifts, waiting
from service.store.progressing import Left
from service.store.tables import ExperimentRow, HostRow, ShiftRow


@dataclass(frozen=True)
class Night:
    """One host's night, as foreseen at `now`."""

    host: str
    now: datetime
    config: HostConfig
    queue: tuple[int, ...]
    """Ids of what is queued, in the order in which they are chosen."""
    slots: dict[int, Slot]
    until: datetime | None
    """By when all must have ended so that production is back in time; None: no end is set."""
    active: int | None = None
    left: Left | None = None
    """Of the active one."""
    bases: dict[int, Basis] = field(default_factory=dict)

    @cached_property
    def _place(self) -> dict[int, int]:
        return {one: place for place, one in enumerate(self.queue)}

    def ahead(self, experiment_id: int) -> int:
        """How many of the host's experiments run or wait before this one."""
        return self._place.get(experiment_id, 0) + int(self.active is not None)

    def slot(self, experiment_id: int) -> Slot | None:
        """When an experiment runs; None for one that neither runs nor is queued."""
        return self.slots.get(experiment_id)

    def text_of(self, experiment_id: int) -> str:
        """When an experiment runs, in words; empty for one that neither runs nor is queued."""
        slot = self.slots.get(experiment_id)
        if slot is None:
            return ""
        if experiment_id == self.active:
            left = self.left
            return running_text(
                slot, left.half if left else None, left.basis if left else None, self._reader, left.following if left else ()
            )
        return waiting_text(slot, self.bases.get(experiment_id), self._reader)

    def text(self) -> str:
        """The night against the window; empty where nothing runs and nothing waits."""
        return night_text(list(self.slots.values()), self.until, self._reader)

    @property
    def _reader(self) -> Reader:
        return Reader(self.now.astimezone(), self.config.zone)


def night(session: Session, host: str, now: datetime) -> Night:
    """Foresee a host's night. The same number of queries however long its queue is."""
    return of_host(session, hosts.by_name(session, host), now)


NONE: frozenset[int] = frozenset()

Estimating = Callable[[Session, int, Collection[history.Config]], Mapping[history.Config, history.Estimate]]


def of_host(session: Session, row: HostRow, now: datetime, estimates: Estimating = history.estimates) -> Night:
    """The same for a host's row. `estimates`: where to look up how long things take."""
    host_id = row.id or 0
    active = session.exec(
        select(ExperimentRow).where(ExperimentRow.host_id == host_id, col(ExperimentRow.status).in_(list(ACTIVE)))
    ).first()
    queued = waiting.queued(session, host_id)
    configs = {one.config for one in queued} | ({history.config_of(active)} if active else set())
    known = estimates(session, host_id, configs) if configs else {}
    unmet = waiting.unmet(session, host_id) if queued else {}
    found = [known.get(one.config) for one in queued]
    queue = [
        Waiting(one.id, estimate.takes if estimate else None, one.guest, one.not_before, unmet.get(one.id, NONE))
        for one, estimate in zip(queued, found, strict=True)
    ]
    state = _state(session, row)
    left = progressing.left(session, active, now) if active else None
    return Night(
        host=row.name,
        now=now,
        config=HostConfig.model_validate(row.config),
        queue=tuple(one.id for one in queued),
        slots=foresee(state, queue, now, _active(active, left, known) if active else None),
        until=_until(state, now),
        active=active.id if active else None,
        left=left,
        bases={one.id: estimate.basis for one, estimate in zip(queued, found, strict=True) if estimate},
    )


def _active(row: ExperimentRow, left: Left | None, known: Mapping[history.Config, history.Estimate]) -> Active:
    config = history.config_of(row)
    again = Waiting(row.id or 0, known[config].takes if config in known else None, config.kind == "endpoint")
    total = left.total if left else None
    return Active(row.id or 0, total.left if total else None, again, late=total is not None and total.longest_s is not None)


def _state(session: Session, row: HostRow) -> HostState:
    host_id = row.id or 0
    shift = shifts.current(session, host_id)
    opening = agenda.opening(session, row)
    parked = opening.parks and shift is not None and shift.phase in {ShiftPhase.PARKING, ShiftPhase.PARKED}
    return HostState(
        opening=opening,
        parked=parked and not _ending(shift),
        restoring=opening.parks and _ending(shift),
        park=history.of_shift(session, host_id, "park", history.ASSUMED_PARK_S),
        restore=history.of_shift(session, host_id, "restore", history.ASSUMED_RESTORE_S),
        close_after_s=HostConfig.model_validate(row.config).close_after,
        # Whoever has production given back also pauses the host.
        shut=row.paused or row.blocked is not None or row.give_back_by is not None,
    )


def _ending(shift: ShiftRow | None) -> bool:
    """Production is on its way back."""
    if shift is None:
        return False
    touched = shift.phase in {ShiftPhase.PARKING, ShiftPhase.PARKED}
    return shift.phase == ShiftPhase.RESTORING or (touched and shift.closing is not None)


def _until(state: HostState, now: datetime) -> datetime | None:
    opening = state.opening
    if opening.may_open(now):
        return opening.curfew(now)
    return opening.curfew(opening.window.next_opening(now)) if opening.window else None
