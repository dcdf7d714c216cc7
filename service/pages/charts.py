"""Charts as geometry: templates draw them as SVG, so that they need no script; series for the script that draws lines over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from service.domain.events import Event
from service.domain.measurement import PhaseResult

BAR_W, BAR_GAP, PLOT_H = 16, 14, 110
LEFT = 34
FOREST_W, NAME_W, FIGURE_W, ROW_H = 640, 150, 150, 24
LEAST_SPAN = 0.02


class Bar(NamedTuple):
    """One bar, in the units of the picture."""

    x: float
    y: float
    height: float
    side: int
    """0 is the baseline's."""
    text: str


class Bars(NamedTuple):
    """Shares by position."""

    width: int
    height: int
    bars: list[Bar]
    ticks: list[tuple[float, str]]
    """Place and position, 1..k."""
    sides: list[tuple[int, str]]


def acceptance(sides: Sequence[tuple[str, Sequence[float] | None]]) -> Bars | None:
    """Accepted share of the drafts by position, a bar a side, the baseline's first; None where no side reports any."""
    known = [(number, name, list(shares)) for number, (name, shares) in enumerate(sides) if shares]
    if not known:
        return None
    positions = max(len(shares) for _, _, shares in known)
    group = len(known) * BAR_W + BAR_GAP
    bars = [
        Bar(LEFT + place * group + at * BAR_W, PLOT_H * (1 - share) + 8, PLOT_H * share, side, f"{name}, position {place + 1}: {share:.0%}")
        for at, (side, name, shares) in enumerate(known)
        for place, share in enumerate(shares)
    ]
    ticks = [(LEFT + place * group + len(known) * BAR_W / 2, str(place + 1)) for place in range(positions)]
    return Bars(LEFT + positions * group + 8, PLOT_H + 36, bars, ticks, [(side, name) for side, name, _ in known])


class Whisker(NamedTuple):
    """One line of a forest: a change and its interval."""

    name: str
    y: float
    x: float
    low: float | None
    high: float | None
    tone: str
    text: str


class Forest(NamedTuple):
    """Changes with their 95 % intervals, around no change."""

    width: int
    height: int
    zero: float
    ticks: list[tuple[float, str]]
    rows: list[Whisker]


def forest(rows: Sequence[tuple[str, float | None, Sequence[float] | None]]) -> Forest | None:
    """A line for each name, change and interval of the change; None where nothing is known."""
    known = [(name, change, interval) for name, change, interval in rows if change is not None]
    if not known:
        return None
    widest = max(max(abs(value) for value in (change, *(interval or ()))) for _, change, interval in known)
    step = _step(max(widest, LEAST_SPAN))
    span = math.ceil(max(widest, LEAST_SPAN) / step) * step
    plot = FOREST_W - NAME_W - FIGURE_W

    def at(change: float) -> float:
        return round(NAME_W + plot * (change + span) / (2 * span), 1)

    drawn = [
        Whisker(
            name, 14 + number * ROW_H, at(change), at(interval[0]) if interval else None, at(interval[1]) if interval else None,
            _tone(interval), _words(change, interval),
        )
        for number, (name, change, interval) in enumerate(known)
    ]  # fmt: skip
    count = round(span / step)
    ticks = [(at(step * number), f"{100 * step * number:+.0f} %" if number else "0") for number in range(-count, count + 1)]
    return Forest(FOREST_W, 14 + len(drawn) * ROW_H + 20, at(0.0), ticks, drawn)


def _step(widest: float) -> float:
    """A round distance between ticks, so that a few stand on either side."""
    return next((step for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0) if widest / step <= 4), float(math.ceil(widest)))  # noqa: PLR2004


def _tone(interval: Sequence[float] | None) -> str:
    if interval is None or interval[0] <= 0 <= interval[1]:
        return "quiet"
    return "good" if interval[0] > 0 else "bad"


def _words(change: float, interval: Sequence[float] | None) -> str:
    text = f"{100 * change:+.1f} %"
    return f"{text} [{100 * interval[0]:+.1f}, {100 * interval[1]:+.1f}]" if interval else f"{text} (no interval)"


def over_time(events: Sequence[Event], key: str, unit: str) -> dict[str, Any] | None:
    """A figure of signs of progress over time, as the script draws it; None where there are not two of them."""
    known = [(event.at.timestamp(), event.data[key]) for event in events if isinstance(event.data.get(key), int | float)]
    if len(known) <= 1:
        return None
    return {
        "x": [round(at, 1) for at, _ in known],
        "time": True,
        "unit": unit,
        "lines": [{"name": unit, "y": [value for _, value in known]}],
    }


def by_level(sides: Sequence[tuple[str, Sequence[PhaseResult]]]) -> dict[str, Any] | None:
    """Output of all together by concurrency, a line a side, the baseline first; None where there are not two levels."""
    levels = sorted({phase.concurrency for _, phases in sides for phase in phases})
    if len(levels) <= 1:
        return None
    lines = []
    for name, phases in sides:
        known = {phase.concurrency: phase.summary.output_tps for phase in phases}
        lines.append({"name": name, "y": [known.get(level) for level in levels]})
    return {"x": levels, "time": False, "unit": "tok/s", "lines": lines}
