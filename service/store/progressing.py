"""What is left of a running experiment, by where it is and how long it has been there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlmodel import Session, col, select

from service.domain.eta import NOTHING, Remaining, Spread, remaining
from service.domain.eta_wording import Basis, left_text
from service.domain.status import Status, StepName
from service.domain.wording import load_text
from service.store import durations, history, steps
from service.store.durations import BENCH, LEVEL_PREFIX, LOAD_PREFIX, READY
from service.store.tables import BenchPhaseRow, ExperimentRow

SHORT = 0.02
"""A phase that takes less than this share of a load is not worth a word."""
EXACT = 0.01
"""Phases that miss more than this share of their load leave a hole: such a load's phases tell nothing."""


@dataclass(frozen=True)
class Left:
    """What is left, in all and of the present half: the load, or what follows it."""

    total: Remaining
    half: Remaining
    basis: Basis | None = None
    following: tuple[str, ...] = ()
    """Phases of the load to come."""

    def load_json(self, progress: Mapping[str, Any]) -> dict[str, Any]:
        """Of a load: what is left of it, in seconds and in words. `progress` is where it is."""
        half, known = self.half, self.half.longest_s is None
        words = (load_text(progress), left_text(half, self.following))
        return {
            "left_s": round(half.left.p50, 1) if known else None,
            "left_p90_s": round(half.left.p90, 1) if known else None,
            "longest_s": half.longest_s,
            "following": list(self.following),
            "text": ", ".join(word for word in words if word),
            "basis": self.basis.text() if self.basis else None,
        }


def left(session: Session, row: ExperimentRow, now: datetime) -> Left | None:
    """None: there is no history of such."""
    if row.status == Status.STOPPING:
        return Left(Remaining(NOTHING), Remaining(NOTHING))
    step, elapsed_s = _at(session, row, now)
    ready = durations.BEFORE[durations.is_command(row)]
    return _loading(session, row, step, elapsed_s, now) if step in ready else _benching(session, row, step, elapsed_s, now)


def _at(session: Session, row: ExperimentRow, now: datetime) -> tuple[StepName, float]:
    """The first step that is not done, and since when it is at it."""
    command = durations.is_command(row)
    order = (*durations.BEFORE[command], *durations.AFTER[command])
    begun = {one.name: one for one in steps.every(session, row.id or 0) if one.attempt == row.attempt}
    for name in order:
        found = begun.get(name)
        if found is None:
            return name, 0.0
        if found.finished_at is None:
            return name, (now - found.started_at).total_seconds()
    return order[-1], 0.0


def _loading(session: Session, row: ExperimentRow, step: StepName, elapsed_s: float, now: datetime) -> Left | None:
    found = history.parts(session, row.host_id, row, READY)
    bench = history.bench_of(session, row.host_id, history.config_of(row))
    if found is None or bench is None:
        return None
    runs, scope = found
    order = durations.BEFORE[durations.is_command(row)]
    following: tuple[str, ...] = ()
    half = remaining(runs, step, elapsed_s, order[order.index(step) + 1 :])
    if step == StepName.LOAD:
        by_phase = _phase(runs, row, elapsed_s, now)
        if by_phase is not None:
            half, following = by_phase
    if half is None:
        return None
    total = Remaining(half.left.plus(Spread.of(list(bench.seconds.values()))), half.longest_s)
    basis = Basis(len(runs), scope, len(bench.seconds), bench.scope, str(row.spec["engine"]["kind"]))
    return Left(total, half, basis, following)


def _phase(
    runs: Sequence[dict[str, float]], row: ExperimentRow, elapsed_s: float, now: datetime
) -> tuple[Remaining, tuple[str, ...]] | None:
    """By the phase the load is in. None where history knows no phases, or not this one."""
    whole = [run for run in runs if _complete(run)]
    seen = row.progress.get("phases", {})
    name, since = list(seen.items())[-1] if seen else (durations.ENGINE_INIT, None)
    if since is not None and name != durations.ENGINE_INIT:
        elapsed_s = (now - datetime.fromisoformat(since)).total_seconds()
    later = list(durations.PHASES[durations.PHASES.index(name) + 1 :]) if name in durations.PHASES else []
    half = remaining(whole, f"{LOAD_PREFIX}{name}", elapsed_s, [f"{LOAD_PREFIX}{phase}" for phase in later])
    if half is None:
        return None
    load_s = sum(run[StepName.LOAD] for run in whole)
    worth = [phase for phase in later if sum(run.get(f"{LOAD_PREFIX}{phase}", 0.0) for run in whole) >= SHORT * load_s]
    return half, tuple(worth)


def _complete(run: dict[str, float]) -> bool:
    known = sum(seconds for part, seconds in run.items() if part.startswith(LOAD_PREFIX))
    return StepName.LOAD in run and abs(run[StepName.LOAD] - known) <= EXACT * run[StepName.LOAD]


def _benching(session: Session, row: ExperimentRow, step: StepName, elapsed_s: float, now: datetime) -> Left | None:
    found = history.parts(session, row.host_id, row, BENCH)
    if found is None:
        return None
    runs, scope = found
    part, after = _bench_part(session, row, step)
    if part != step:
        elapsed_s = _level_since(session, row, now)
    half = remaining(runs, part, elapsed_s, after) or remaining(runs, step, elapsed_s, [])
    if half is None:
        return None
    return Left(half, half, Basis(len(runs), scope, len(runs), scope, str(row.spec["engine"]["kind"])))


def _bench_part(session: Session, row: ExperimentRow, step: StepName) -> tuple[str, list[str]]:
    """The part that it is in, and those after it."""
    if step != StepName.MEASURE or durations.is_command(row):
        order = durations.AFTER[durations.is_command(row)]
        return step, [str(name) for name in order[order.index(step) + 1 :]]
    done = {phase.concurrency for phase in _levels(session, row) if phase.finished_at is not None}
    to_do = [level for level in row.spec.get("bench", {}).get("concurrency", []) if level not in done]
    parts = [*(f"{LEVEL_PREFIX}{level}" for level in to_do), str(StepName.COLLECT)]
    return parts[0], parts[1:]


def _level_since(session: Session, row: ExperimentRow, now: datetime) -> float:
    """How long the level that is measured has been at it."""
    begun = [phase.started_at for phase in _levels(session, row) if phase.finished_at is None]
    return (now - begun[-1]).total_seconds() if begun else 0.0


def _levels(session: Session, row: ExperimentRow) -> list[BenchPhaseRow]:
    query = select(BenchPhaseRow).where(
        BenchPhaseRow.experiment_id == row.id,
        BenchPhaseRow.attempt == row.attempt,
        BenchPhaseRow.kind == "measured",
        col(BenchPhaseRow.superseded).is_(False),
    )
    return list(session.exec(query.order_by(col(BenchPhaseRow.id))))
