"""What is to come on one host: its queue walked through by the rules that its worker chooses by."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from service.domain.curfew import Opening, fits
from service.domain.eta import NOTHING, Spread

NIGHTS = 3
"""How many windows are looked into. What will have happened by then, nobody can know."""


class Waiting(NamedTuple):
    """A queued experiment, or one that will be queued again."""

    id: int
    takes: Spread | None
    """None: there is no history of such."""
    guest: bool = False
    """It measures what serves already, so it runs before anything is parked."""
    not_before: datetime | None = None
    after: frozenset[int] = frozenset()
    """What has not succeeded yet."""


@dataclass(frozen=True)
class Active:
    """The experiment that runs."""

    id: int
    left: Spread | None
    again: Waiting
    """What it is where it is cut and queued again."""
    late: bool = False
    """It has taken longer than ever before, so that `left` is the least."""


@dataclass(frozen=True)
class HostState:
    """The host at this moment."""

    opening: Opening
    parked: bool = False
    restoring: bool = False
    """Its shift ends: production comes back before anything else."""
    park: Spread = NOTHING
    restore: Spread = NOTHING
    close_after_s: float = 0.0
    """How long a shift waits for more to do."""
    shut: bool = False
    """Paused or blocked: nothing new starts."""


class Unknown(StrEnum):
    """Why nothing can be said about when an experiment runs."""

    SHUT = "shut"  # the host takes nothing new, until a person says so
    NO_HISTORY = "no_history"  # it has none itself
    BEHIND = "behind"  # what runs before it has none
    DEPENDS = "depends"  # on one that is not foreseen here
    NO_WINDOW = "no_window"  # the host may not be had
    FAR = "far"  # not within the nights that are looked into


@dataclass(frozen=True)
class Refused:
    """Why a window was too short."""

    needs_s: float
    left_s: float
    opens: datetime
    """When the next one opens."""
    whole_window: bool
    """Nothing had been before it, so that no other night has more room either."""


class Slot(NamedTuple):
    """When one experiment is foreseen to run. Without `starts_at`, `unknown` says why."""

    id: int
    starts_at: datetime | None = None
    starts_p90: datetime | None = None
    ends_at: datetime | None = None
    ends_p90: datetime | None = None
    night: int = 0
    """Which window it runs in; 0 is the present one, or the next where none is open."""
    at_least: bool = False
    """What runs has outlasted all history, so that nothing here is more than the earliest."""
    unknown: Unknown | None = None
    because_of: int | None = None
    """The experiment that has no history, or that must end first."""
    refused: Refused | None = None
    """It was not to be started in the first window that it could have."""
    cut: bool = False
    """It runs, and will be cut by the end of the window."""


class _Clock:
    """A moment that lies in the future, and so has a spread: what has to be gone through since `base`, which is certain."""

    def __init__(self, base: datetime) -> None:
        self.base, self.gone = base, NOTHING
        self.p50 = self.p90 = base

    def spend(self, time: Spread) -> None:
        """Go through something."""
        self.gone = self.gone.plus(time)
        self.p50 = self.base + timedelta(seconds=self.gone.p50)
        self.p90 = self.base + timedelta(seconds=self.gone.p90)

    def until(self, moment: datetime) -> None:
        """Wait for an hour of the clock: it comes when it comes, whatever was before."""
        if moment > self.p50:
            self.base, self.gone = moment, NOTHING
            self.p50 = self.p90 = moment


@dataclass
class Walk:
    """One walk through the queue of a host."""

    host: HostState
    queue: Sequence[Waiting]
    """In the order in which they are chosen."""
    now: datetime
    active: Active | None = None
    slots: dict[int, Slot] = field(default_factory=dict)
    stopped: Unknown | None = None
    """Why the walk cannot go on."""
    because_of: int | None = None

    def __post_init__(self) -> None:
        self._clock = _Clock(self.now)
        self._items = dict(enumerate(self.queue))
        self._ready: dict[bool, list[int]] = {True: [], False: []}
        self._later: list[tuple[datetime, int]] = []
        self._needs = {place: set(item.after) for place, item in self._items.items()}
        self._dependents: dict[int, list[int]] = defaultdict(list)
        self._tired: list[int] = []
        self._refused: dict[int, Refused] = {}
        self._whole = False
        self._late = False
        self._parked = self.host.parked
        self._opening = self.host.opening
        window = self._opening.window
        self._night = 0 if window is None or window.closes_at(self.now) else -1
        for place, item in self._items.items():
            for other in item.after:
                self._dependents[other].append(place)
            if not item.after:
                self._admit(place)

    def go(self) -> dict[int, Slot]:
        """The slot of each experiment by its id."""
        self._finish_active()
        if self.host.restoring and self.stopped is None:
            self._give_back()
        if self.host.shut:
            self.stopped = self.stopped or Unknown.SHUT
        while self.stopped is None and self._step():
            pass
        for item in self.queue:
            if item.id not in self.slots:
                self.slots[item.id] = self._unforeseen(item)
        return self.slots

    def _unforeseen(self, item: Waiting) -> Slot:
        if self.stopped is not None:
            own = self.stopped == Unknown.BEHIND and item.takes is None
            return Slot(item.id, unknown=Unknown.NO_HISTORY if own else self.stopped, because_of=self.because_of)
        unmet = sorted(other for other in item.after if other not in self.slots or self.slots[other].ends_at is None)
        if unmet:
            return Slot(item.id, unknown=Unknown.DEPENDS, because_of=unmet[0])
        shut_for_ever = self._opening.parks and not item.guest and self._opening.window is None
        return Slot(item.id, unknown=Unknown.NO_WINDOW if shut_for_ever else Unknown.FAR, refused=self._refused.get(item.id))

    # What runs already.

    def _finish_active(self) -> None:
        active = self.active
        if active is None:
            return
        if active.left is None:
            self.slots[active.id] = Slot(active.id, self.now, self.now, unknown=Unknown.NO_HISTORY)
            self.stopped, self.because_of = Unknown.BEHIND, active.id
            return
        end = None if active.again.guest else self._opening.curfew(self.now)
        self._clock.spend(active.left)
        self._late = active.late
        slot = Slot(active.id, self.now, self.now, self._clock.p50, self._clock.p90, at_least=active.late)
        if end is not None and self._clock.p50 >= end:
            self.slots[active.id] = slot._replace(cut=True)
            self._clock = _Clock(max(end, self.now))
            self._items[-1] = active.again
            heapq.heappush(self._ready[False], -1)
            return
        self.slots[active.id] = slot
        self._succeeded(active.id)

    # The queue.

    def _admit(self, place: int) -> None:
        item = self._items[place]
        if item.not_before is not None and item.not_before > self._clock.p50:
            heapq.heappush(self._later, (item.not_before, place))
        else:
            heapq.heappush(self._ready[item.guest], place)

    def _succeeded(self, experiment_id: int) -> None:
        for place in self._dependents.pop(experiment_id, ()):
            self._needs[place].discard(experiment_id)
            if not self._needs[place]:
                self._admit(place)

    def _due(self) -> None:
        while self._later and self._later[0][0] <= self._clock.p50:
            _, place = heapq.heappop(self._later)
            heapq.heappush(self._ready[self._items[place].guest], place)

    def _run(self, place: int) -> None:
        item = self._items[place]
        start, start_p90 = self._clock.p50, self._clock.p90
        night, refused = max(self._night, 0), self._refused.get(item.id)
        self._whole = False
        if item.takes is None:
            self.slots[item.id] = Slot(item.id, start, start_p90, night=night, unknown=Unknown.NO_HISTORY, refused=refused)
            self.stopped, self.because_of = Unknown.BEHIND, item.id
            return
        self._clock.spend(item.takes)
        if place >= 0:
            end, end_p90 = self._clock.p50, self._clock.p90
            self.slots[item.id] = Slot(item.id, start, start_p90, end, end_p90, night, self._late, refused=refused)
        self._succeeded(item.id)

    # One thing after the other, as the worker does it.

    def _step(self) -> bool:
        """Do the next thing; False where nothing more will ever be done."""
        self._due()
        if not self._opening.parks:
            first = min((ready[0] for ready in self._ready.values() if ready), default=None)
            if first is None:
                return self._wait_for(self._later[0][0] if self._later else None)
            self._run(heapq.heappop(self._ready[self._items[first].guest]))
            return True
        return self._step_parked() if self._parked else self._step_serving()

    def _step_serving(self) -> bool:
        if self._ready[True]:
            self._run(heapq.heappop(self._ready[True]))
            return True
        if self._opening.may_open(self._clock.p50) and self._fitting() is not None:
            self._clock.spend(self.host.park)
            self._parked = True
            return True
        moments = [self._later[0][0]] if self._later else []
        window = self._opening.window
        if window is not None and (self._ready[False] or self._tired):
            moments.append(window.next_opening(self._clock.p50))
        return self._wait_for(min(moments, default=None))

    def _step_parked(self) -> bool:
        place = self._fitting()
        if place is not None:
            heapq.heappop(self._ready[False])
            self._run(place)
            return True
        end = self._opening.curfew(self._clock.p50)
        idle = self._clock.p50 + timedelta(seconds=self.host.close_after_s)
        more = self._later[0][0] if self._later and self._later[0][0] <= idle and not self._ready[True] else None
        if more is not None and (end is None or more < end):
            self._clock.until(more)
            return True
        if not self._ready[True]:
            self._clock.until(idle if end is None else min(idle, end))
        self._give_back()
        return True

    def _give_back(self) -> None:
        self._clock.spend(self.host.restore)
        self._parked = False
        self._opening = replace(self._opening, allowed=False)

    def _fitting(self) -> int | None:
        """The first that ends before the curfew. What does not now will not later in this window either."""
        now, ready = self._clock.p50, self._ready[False]
        end = self._opening.curfew(now)
        while ready:
            item = self._items[ready[0]]
            if fits(now, item.takes.p90 if item.takes else None, end):
                return ready[0]
            if end is not None:
                self._refuse(item, now, end)
            self._tired.append(heapq.heappop(ready))
        return None

    def _refuse(self, item: Waiting, now: datetime, end: datetime) -> None:
        known = self._refused.get(item.id)
        window = self._opening.window
        if window is not None and (known is None or self._whole):
            needs = item.takes.p90 if item.takes else 0.0
            left = max((end - now).total_seconds(), 0.0)
            self._refused[item.id] = Refused(needs, left, window.next_opening(now), self._whole)

    def _wait_for(self, moment: datetime | None) -> bool:
        if moment is None:
            return False
        window = self._opening.window
        opened = window is not None and window.next_opening(self._clock.p50) <= moment
        self._clock.until(moment)
        if opened:
            self._night += 1
            self._whole = True
            for place in self._tired:
                heapq.heappush(self._ready[False], place)
            self._tired = []
        return self._night < NIGHTS


def foresee(host: HostState, queue: Iterable[Waiting], now: datetime, active: Active | None = None) -> dict[int, Slot]:
    """When each experiment of a host runs, by its id."""
    return Walk(host, tuple(queue), now, active).go()
