"""What ended, in a line each: its speed, and what that is against its baseline, as the comparison of the API says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine
from sqlmodel import Session

from service.api.compare import compare_experiments
from service.api.experimentviews import experiments_out
from service.api.schemas import ExperimentOut
from service.domain.comparison import Comparison
from service.domain.errors import ExpctlError
from service.domain.status import Outcome
from service.store import board
from service.store.tables import ExperimentRow
from service.store.telling import baseline_of


class Versus(NamedTuple):
    """An experiment against its baseline, at the first level that both measured."""

    baseline: int
    verdict: str
    ratio: float | None
    """Of tokens/s; None where nothing may be said."""
    ci95: list[float] | None


class Ended(NamedTuple):
    """One line."""

    item: ExperimentOut
    speed: float | None
    versus: Versus | None


def ended(session: Session, rows: Sequence[ExperimentRow]) -> list[Ended]:
    """Finished experiments with their speeds and what these are worth."""
    shown = experiments_out(session, rows)
    speeds = board.speeds(session, [item.id for item in shown])
    return [Ended(item, speeds.get(item.id), versus(session, row)) for item, row in zip(shown, rows, strict=True)]


@dataclass
class _Memory:
    """Comparisons of one database. None changes while nothing ends: a finished experiment stays as it is."""

    at: int = -1
    known: dict[tuple[int, int], Versus | None] = field(default_factory=dict)


_MEMORIES: WeakKeyDictionary[Engine | Connection, _Memory] = WeakKeyDictionary()


def versus(session: Session, row: ExperimentRow) -> Versus | None:
    """Against its baseline; None where it has none, or nothing was measured. Kept by the process: judging takes milliseconds."""
    base = baseline_of(session, row) if row.outcome == Outcome.SUCCEEDED else None
    if base is None:
        return None
    memory = _MEMORIES.setdefault(session.get_bind(), _Memory())
    latest = board.last_finish(session)
    if memory.at != latest:
        memory.at, memory.known = latest, {}
    key = (base, row.id or 0)
    if key not in memory.known:
        memory.known[key] = _judged(session, *key)
    return memory.known[key]


def _judged(session: Session, base: int, candidate: int) -> Versus | None:
    try:
        found = compare_experiments(session, base, str(candidate))
    except ExpctlError:
        return None  # one of the two has no measurement, which its own page says
    if not isinstance(found, Comparison):
        return None
    effect = found.bench_phases[0].effect if found.bench_phases else None
    return Versus(base, found.verdict, effect.tps_ratio if effect else None, effect.ci95 if effect else None)
