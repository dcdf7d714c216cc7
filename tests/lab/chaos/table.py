"""What came of it, fault by place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.lab.chaos.places import Place


@dataclass(frozen=True)
class Verdict:
    """What was wrong after one strike; all empty when nothing was."""

    lost: tuple[str, ...] = ()
    """Experiments that did not end as they should, facts without an event, events without a message."""
    doubled: tuple[str, ...] = ()
    """What happened twice: a load, an end, a message; or two experiments at once."""
    not_restored: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return not (self.lost or self.doubled or self.not_restored)


@dataclass(frozen=True)
class Strike:
    """One fault at one place, and the verdict."""

    fault: str
    place: Place
    seconds: float
    verdict: Verdict


@dataclass
class Table:
    """Every strike of a run."""

    strikes: list[Strike] = field(default_factory=list)

    def text(self, faults: Sequence[str], places: Sequence[Place]) -> str:
        """Markdown: a row a fault, a column a place; `runs/lost/doubled/not restored` where something is not zero, else the runs."""
        lines = ["| fault | " + " | ".join(map(str, places)) + " | all |", "|---" * (len(places) + 2) + "|"]
        for fault in faults:
            row = [one for one in self.strikes if one.fault == fault]
            cells = [_cell([one for one in row if one.place == place]) for place in places]
            lines.append(f"| {fault} | {' | '.join(cells)} | {_cell(row)} |")
        wrong = [one for one in self.strikes if not one.verdict.good]
        lines += ["", _sum(self.strikes), *(f"- {one.fault} {one.place}: {one.verdict}" for one in wrong)]
        return "\n".join(lines)


def _counts(strikes: Sequence[Strike]) -> tuple[int, int, int]:
    return (
        sum(len(one.verdict.lost) for one in strikes),
        sum(len(one.verdict.doubled) for one in strikes),
        sum(len(one.verdict.not_restored) for one in strikes),
    )


def _cell(strikes: Sequence[Strike]) -> str:
    if not strikes:
        return ""
    counts = _counts(strikes)
    return f"{len(strikes)}" if not any(counts) else "/".join(map(str, (len(strikes), *counts)))


def _sum(strikes: Sequence[Strike]) -> str:
    lost, doubled, left = _counts(strikes)
    places = len({(one.fault, one.place) for one in strikes})
    return f"{len(strikes)} runs in {places} combinations: {lost} lost, {doubled} doubled, {left} not restored."
