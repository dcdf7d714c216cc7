"""How long things took before: what the times to come are judged by."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sqlmodel import Session, col, select

from service.domain.status import Outcome
from service.store.tables import ExperimentRow

REMEMBERED = 20


def p90(ascending: Sequence[float]) -> float | None:
    """The smallest value that nine of ten do not exceed (nearest rank); None without any."""
    return ascending[math.ceil(0.9 * len(ascending)) - 1] if ascending else None


def expected_s(session: Session, row: ExperimentRow) -> float | None:
    """p90 of how long such experiments took on this host, start to end: the same load and bench, else the same model.

    None: there is no history.
    """
    same = (ExperimentRow.engine_hash == row.engine_hash, ExperimentRow.bench_hash == row.bench_hash)
    for alike in (same, (ExperimentRow.served_model == row.served_model, col(ExperimentRow.served_model) != "")):
        query = select(ExperimentRow).where(
            ExperimentRow.host_id == row.host_id,
            ExperimentRow.outcome == Outcome.SUCCEEDED,
            col(ExperimentRow.started_at).is_not(None),
            *alike,
        )
        found = session.exec(query.order_by(col(ExperimentRow.id).desc()).limit(REMEMBERED)).all()
        times = sorted((one.finished_at - one.started_at).total_seconds() for one in found if one.finished_at and one.started_at)
        if times:
            return p90(times)
    return None
