"""What ended, in a line each: its speed, and what that is against its baseline, as the comparison says."""

from __future__ import annotations

from collections.abc import Sequence

from sqlmodel import Session

from service.api.experimentviews import experiments_out
from service.api.nightviews import EndedOut, VersusOut
from service.domain.comparison import Comparison
from service.domain.status import Outcome
from service.store import board
from service.store.tables import ExperimentRow
from service.store.telling import baseline_of, compared

Judged = tuple[VersusOut | None, str]
_VERDICTS = board.Kept[tuple[int, int], Judged]()
"""By the baseline and the experiment."""


def ended(session: Session, rows: Sequence[ExperimentRow]) -> list[EndedOut]:
    """Finished experiments with their speeds and what these are worth."""
    shown = experiments_out(session, rows)
    speeds = board.speeds(session, [item.id for item in shown])
    found = []
    for item, row in zip(shown, rows, strict=True):
        versus, why = judged(session, row)
        found.append(EndedOut(experiment=item, tps=speeds.get(item.id), versus=versus, not_compared=why))
    return found


def judged(session: Session, row: ExperimentRow) -> Judged:
    """Against its baseline, or why there is no verdict. Kept by the process: judging takes milliseconds."""
    base = baseline_of(session, row) if row.outcome == Outcome.SUCCEEDED else None
    if base is None:
        return None, ""
    known, key = _VERDICTS.of(session), (base, row.id or 0)
    if key not in known:
        found, why = compared(session, row)
        known[key] = (_versus(found) if found else None), why
    return known[key]


def _versus(found: Comparison) -> VersusOut:
    effect = found.bench_phases[0].effect if found.bench_phases else None
    return VersusOut(
        baseline=found.baseline,
        verdict=found.verdict,
        tps_ratio=effect.tps_ratio if effect else None,
        ci95=effect.ci95 if effect else None,
    )
