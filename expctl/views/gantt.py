"""A night in signs: a lane a host, a sign the step that took most of its time; time in which nothing ran is folded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

FOLD = timedelta(minutes=40)
"""Time without any step from here on is folded."""
FOLD_W = 7
TICK_W = 9
"""Columns from one time to the next, at least."""
CLOCK_W = len("20:00")
STEPS_MIN = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)
LEAST = timedelta(seconds=10)


class Stretch(NamedTuple):
    """A stretch of one lane."""

    begins: datetime
    ends: datetime
    kind: str
    """What is drawn: a step's name, `foreseen`, or `parked`."""


@dataclass(frozen=True)
class Scale:
    """From moments to columns: even within a stretch in which something ran, folded between two."""

    busy: list[tuple[datetime, datetime]]
    width: int

    @property
    def a_sign(self) -> timedelta:
        """What one column stands for."""
        whole = sum((end - begin for begin, end in self.busy), timedelta())
        room = max(self.width - FOLD_W * (len(self.busy) - 1), len(self.busy))
        return max(whole / room, LEAST)

    def columns(self) -> Iterator[tuple[int, datetime, datetime]]:
        """Each column with its stretch of time; those of folds are left out."""
        place, sign = 0, self.a_sign
        for begin, end in self.busy:
            at = begin
            while at < end and place < self.width:
                yield place, at, min(at + sign, end)
                place, at = place + 1, at + sign
            place += FOLD_W

    def ticks(self) -> Iterator[tuple[int, datetime]]:
        """Round times by the clock of the first moment, as many as have room."""
        minutes = next((one for one in STEPS_MIN if timedelta(minutes=one) / self.a_sign >= TICK_W), STEPS_MIN[-1])
        step, last = timedelta(minutes=minutes), -TICK_W
        used, starts = {place for place, _, _ in self.columns()}, {begin for begin, _ in self.busy}
        for place, begin, end in self.columns():
            midnight = begin.replace(hour=0, minute=0, second=0, microsecond=0)
            round_one = midnight + step * -(-(begin - midnight) // step)
            room = place - last >= TICK_W - 2 and place + CLOCK_W - 1 in used
            if room and (begin <= round_one < end or begin in starts):
                last = place
                yield place, round_one if begin <= round_one < end else begin

    def folds(self) -> Iterator[tuple[int, timedelta]]:
        """The column at which each fold begins, and how long it is."""
        ends = {end: index for index, (_, end) in enumerate(self.busy)}
        for place, _, end in list(self.columns()):
            index = ends.get(end)
            if index is not None and index + 1 < len(self.busy):
                yield place + 1, self.busy[index + 1][0] - end


def scale(stretches: Sequence[Stretch], width: int) -> Scale:
    """What fits all of them; ValueError without any."""
    ordered = sorted((one.begins, one.ends) for one in stretches)
    if not ordered:
        raise ValueError("nothing to draw")
    merged = [ordered[0]]
    for begin, end in ordered[1:]:
        if begin - merged[-1][1] < FOLD:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return Scale(merged, width)


def kinds(lane: Sequence[Stretch], on: Scale) -> dict[int, str]:
    """Column -> what took most of its time."""
    found: dict[int, str] = {}
    for place, begin, end in on.columns():
        longest = timedelta()
        for one in lane:
            took = min(end, one.ends) - max(begin, one.begins)
            if took > longest:
                longest, found[place] = took, one.kind
    return found


def place_of(moment: datetime, on: Scale) -> int | None:
    """The column of a moment; None within a fold or outside."""
    return next((place for place, begin, end in on.columns() if begin <= moment < end), None)
