"""The night as a picture: a lane a host, a bar an experiment, a piece a step; time in which nothing happened is folded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

WIDTH, LEFT, RIGHT, TOP = 1160, 110, 16, 30
LANE_H, BAR_H = 46, 22
FOLD = timedelta(minutes=40)
"""Idle time from here on is folded."""
FOLD_W = 34
EDGE_SHARE, LEAST_EDGE, MOST_EDGE = 50, timedelta(seconds=5), timedelta(minutes=4)
"""Room beside what happened: so small a part of all of it, within limits."""
TICKS = 12
STEPS_MIN = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)
LEAST_W = 2.0


@dataclass(frozen=True)
class Span:
    """A stretch of one lane."""

    begins: datetime
    ends: datetime
    kind: str
    """A step's name, `foreseen`, or `parked`."""


@dataclass(frozen=True)
class Bar:
    """One experiment on its lane."""

    id: int
    name: str
    tone: str
    words: str
    whole: Span
    pieces: list[Span] = field(default_factory=list)


@dataclass(frozen=True)
class Lane:
    """One host."""

    name: str
    bars: list[Bar]
    parked: list[Span] = field(default_factory=list)
    """While production did not serve."""


class Rect(NamedTuple):
    """A drawn stretch."""

    x: float
    width: float
    kind: str


class DrawnBar(NamedTuple):
    """A drawn experiment."""

    bar: Bar
    rect: Rect
    pieces: list[Rect]
    label: str
    """Empty where it has no room."""


class DrawnLane(NamedTuple):
    """A drawn host."""

    name: str
    y: int
    bars: list[DrawnBar]
    parked: list[Rect]


class Picture(NamedTuple):
    """All of it, in the units of the picture."""

    width: int
    height: int
    lanes: list[DrawnLane]
    ticks: list[tuple[float, datetime]]
    folds: list[tuple[float, str]]
    now: float | None


def picture(lanes: Sequence[Lane], now: datetime) -> Picture | None:
    """None where there is nothing to draw."""
    spans = [bar.whole for lane in lanes for bar in lane.bars] + [span for lane in lanes for span in lane.parked]
    if not spans:
        return None
    scale = Scale(spans, now)
    drawn = [_lane(lane, TOP + number * LANE_H, scale) for number, lane in enumerate(lanes)]
    at = scale.x(now) if scale.begins <= now <= scale.ends else None
    return Picture(WIDTH, TOP + len(drawn) * LANE_H + 8, drawn, scale.ticks(), scale.folds(), at)


def _lane(lane: Lane, y: int, scale: Scale) -> DrawnLane:
    bars = []
    for bar in lane.bars:
        rect = scale.rect(bar.whole)
        label = f"{bar.id} {bar.name}"
        room = int((rect.width - 8) / 6.2)
        # Whole words of the name that a screen reader says, for whoever speaks to the page says what is seen.
        short = label if len(label) <= room else label[: room + 1].rpartition(" ")[0]
        bars.append(DrawnBar(bar, rect, [scale.rect(one) for one in bar.pieces], short))
    return DrawnLane(lane.name, y, bars, [scale.rect(one) for one in lane.parked])


class Scale:
    """From moments to places: even within a stretch in which something happened, folded between two."""

    def __init__(self, spans: Iterable[Span], now: datetime) -> None:
        self._busy = _merged(spans, now)
        self.begins, self.ends = self._busy[0][0], self._busy[-1][1]
        busy_s = sum((end - start).total_seconds() for start, end in self._busy)
        room = WIDTH - LEFT - RIGHT - FOLD_W * (len(self._busy) - 1)
        self._per_s = room / max(busy_s, 1.0)
        self._at: list[float] = []
        place = float(LEFT)
        for start, end in self._busy:
            self._at.append(place)
            place += (end - start).total_seconds() * self._per_s + FOLD_W

    def x(self, moment: datetime) -> float:
        """Where a moment is; within a fold, at its beginning."""
        for (start, end), place in zip(reversed(self._busy), reversed(self._at), strict=True):
            if moment >= start:
                return round(place + (min(moment, end) - start).total_seconds() * self._per_s, 1)
        return float(LEFT)

    def rect(self, span: Span) -> Rect:
        """A stretch as drawn, never so thin that it cannot be seen."""
        x = self.x(span.begins)
        return Rect(x, round(max(self.x(span.ends) - x, LEAST_W), 1), span.kind)

    def folds(self) -> list[tuple[float, str]]:
        """The middle of each fold, and how long it is."""
        return [
            (place - FOLD_W / 2, _hours(after[0] - before[1]))
            for before, after, place in zip(self._busy, self._busy[1:], self._at[1:], strict=False)
        ]

    def ticks(self) -> list[tuple[float, datetime]]:
        """Round times on the reader's clock, as many as have room, none within a fold."""
        busy_min = sum((end - start).total_seconds() for start, end in self._busy) / 60
        step = timedelta(minutes=next((one for one in STEPS_MIN if busy_min / one <= TICKS), STEPS_MIN[-1]))
        found: list[tuple[float, datetime]] = []
        for start, end in self._busy:
            local = start.astimezone()
            midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
            moment = midnight + step * (-(-(local - midnight) // step))
            while moment <= end:
                place = self.x(moment)
                if not found or place - found[-1][0] > 44:  # noqa: PLR2004 - five letters have that width
                    found.append((place, moment))
                moment += step
        return found


def _merged(spans: Iterable[Span], now: datetime) -> list[tuple[datetime, datetime]]:
    """The stretches in which something happens, with a little room about each; the present belongs to them if it is near."""
    every = list(spans)
    whole = max(span.ends for span in every) - min(span.begins for span in every)
    edge = min(max(whole / EDGE_SHARE, LEAST_EDGE), MOST_EDGE)
    ordered = sorted((span.begins - edge, span.ends + edge) for span in every)
    merged = [ordered[0]]
    for start, end in ordered[1:]:
        if start - merged[-1][1] < FOLD:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    if timedelta() < now - merged[-1][1] < FOLD:
        merged[-1] = (merged[-1][0], now + edge)
    return merged


def _hours(time: timedelta) -> str:
    minutes = round(time.total_seconds() / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes / 60:.0f} h"  # noqa: PLR2004 - two digits of minutes read well
