"""How long the parts of experiments and shifts took: written as each ends, in the transaction that ends it.

Only of what was gone through whole: a part that was begun by another worker and done again, or during which the host could not
be reached, says nothing about how long such a part takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func
from sqlmodel import Session, col, select

from service.domain.events import EventType
from service.domain.status import StepName
from service.domain.wording import LOAD_PHASES
from service.store.tables import BenchPhaseRow, DurationRow, EventRow, ExperimentRow, RequestRow, StepRow

READY, BENCH = "ready", "bench"
"""Sums: an attempt's steps until the engine serves, and those after."""
FIRST, WARMUP = "bench:first_request", "bench:warmup"
LOAD_PREFIX, LEVEL_PREFIX = "load:", "bench:"
PHASES = tuple(LOAD_PHASES)
ENGINE_INIT = PHASES[0]
"""The phase that a load begins in, before its log says anything."""

BEFORE = {False: (StepName.CLEAR, StepName.LAUNCH, StepName.LOAD), True: (StepName.CLEAR, StepName.LAUNCH)}
AFTER = {False: (StepName.WARM, StepName.MEASURE, StepName.COLLECT), True: (StepName.MEASURE, StepName.COLLECT)}
"""Steps of the two sums; by whether it is a command."""

BLIND_S = 15.0
"""A change of phase that is seen so soon after nobody could look may have happened meanwhile."""


@dataclass(frozen=True)
class _Part:
    name: str
    begun: datetime
    ended: datetime
    seconds: float | None = None
    """Where it is not the time between the two."""


def of_step(session: Session, step: StepRow, *, taken_up: bool) -> None:
    """Write down what a step that has just ended took, and its phases. `taken_up`: another worker had begun it."""
    row = session.get_one(ExperimentRow, step.experiment_id)
    ended = step.finished_at or step.started_at
    lost = _outages(session, row, step.started_at)
    # An engine or a command goes on by itself while its worker is gone.
    whole = not taken_up or step.name == StepName.LOAD or (is_command(row) and step.name == StepName.MEASURE)
    parts = list(_bench_phases(session, step, row)) if step.name in {StepName.WARM, StepName.MEASURE} else []
    broken = step.name == StepName.MEASURE and not is_command(row) and len(parts) < len(_bench(row).get("concurrency", ()))
    if whole and not broken:
        parts.append(_Part(step.name, step.started_at, ended))
    if step.name == StepName.LOAD:
        parts += _load_phases(row, step.started_at, ended, lost)
    for part in parts:
        if not any(part.begun <= moment <= part.ended for moment in lost):
            session.add(_row(row, part))
    session.flush()
    _sum(session, row, StepName(step.name))


def of_shift(session: Session, host_id: int, host: str, part: str, seconds: float, since_event: int) -> None:
    """Write down what a shift took to `park` or to `restore`. `since_event`: the latest event when it began."""
    lost = select(EventRow.id).where(col(EventRow.id) > since_event, EventRow.host == host, col(EventRow.type).in_(_OUTAGE))
    if session.exec(lost.limit(1)).first() is None:
        session.add(DurationRow(host_id=host_id, part=part, seconds=seconds))


_OUTAGE = [EventType.HOST_UNREACHABLE, EventType.HOST_RECOVERED]


def _outages(session: Session, row: ExperimentRow, since: datetime) -> list[datetime]:
    """When the host was lost, and when it was back."""
    # From the experiment's own events to the first id, since all events of all hosts are many.
    first = select(func.min(EventRow.id)).where(EventRow.experiment_id == row.id, col(EventRow.at) >= since - timedelta(seconds=1))
    begun = session.exec(first).one()
    if begun is None:
        return []
    host = session.exec(select(EventRow.host).where(EventRow.id == begun)).one()
    query = select(EventRow.at).where(col(EventRow.id) >= begun, EventRow.host == host, col(EventRow.type).in_(_OUTAGE))
    return list(session.exec(query))


def _row(row: ExperimentRow, part: _Part) -> DurationRow:
    return DurationRow(
        host_id=row.host_id,
        experiment_id=row.id,
        attempt=row.attempt,
        part=part.name,
        seconds=(part.ended - part.begun).total_seconds() if part.seconds is None else part.seconds,
        engine_hash=row.engine_hash,
        engine_kind=str(row.spec["engine"]["kind"]),
        served_model=row.served_model,
        bench_hash=row.bench_hash if part.name in AFTER[is_command(row)] or part.name.startswith(BENCH) else "",
        repeat=repeat_of(row, part.name),
    )


def is_command(row: ExperimentRow) -> bool:
    """Whether it is a program that ends, instead of a server that is measured."""
    return bool(row.spec["engine"]["kind"] == "command")


def _bench(row: ExperimentRow) -> dict[str, Any]:
    found: dict[str, Any] = row.spec.get("bench", {})
    return found


def repeat_of(row: ExperimentRow, part: str) -> int | None:
    """How often a part of this experiment does its work over; None where that is not its nature."""
    bench = _bench(row)
    if part in {StepName.WARM, WARMUP}:
        # The first request is apart.
        return max(int(bench.get("warmup", 0)) - int(part == WARMUP), 0) or None
    measured = part in {StepName.MEASURE, BENCH} or (part.startswith(LEVEL_PREFIX) and part != FIRST)
    return bench.get("repeat") if measured else None


def _load_phases(row: ExperimentRow, begun: datetime, ended: datetime, lost: list[datetime]) -> Iterator[_Part]:
    """From one change of phase to the next, as they were seen; a phase whose beginning or end nobody saw is left out."""
    seen = {name: datetime.fromisoformat(at) for name, at in row.progress.get("phases", {}).items()}
    if not seen:
        return
    late = set(row.progress.get("late", ()))
    late |= {name for name, at in seen.items() if any(0 <= (at - moment).total_seconds() <= BLIND_S for moment in lost)}
    # What comes before the first line that tells a phase belongs to the engine's start.
    seen = {ENGINE_INIT: begun} | {name: at for name, at in seen.items() if name != ENGINE_INIT}
    late.discard(ENGINE_INIT)
    ends = [*list(seen.items())[1:], ("", ended)]
    for (name, start), (following, end) in zip(seen.items(), ends, strict=True):
        if name not in late and following not in late:
            yield _Part(f"{LOAD_PREFIX}{name}", start, end)


def _bench_phases(session: Session, step: StepRow, row: ExperimentRow) -> Iterator[_Part]:
    """Bench phases that ran whole and in which no request failed."""
    query = select(BenchPhaseRow).where(BenchPhaseRow.experiment_id == step.experiment_id, BenchPhaseRow.attempt == step.attempt)
    found = session.exec(query.order_by(col(BenchPhaseRow.id))).all()
    if step.name == StepName.WARM:
        yield from _warm_up(session, [phase for phase in found if phase.kind == "first_request"], row)
        return
    for phase in found:
        counts = phase.kind == "measured" and phase.finished_at is not None and not phase.superseded
        if counts and phase.finished_at and not phase.summary.get("failed"):
            yield _Part(f"{LEVEL_PREFIX}{phase.concurrency}", phase.started_at, phase.finished_at)


def _warm_up(session: Session, tries: list[BenchPhaseRow], row: ExperimentRow) -> Iterator[_Part]:
    """The first request after the load, and those after it. Where the warm-up was begun twice, the second's first is no first one."""
    if len(tries) != 1 or tries[0].finished_at is None:
        return
    phase = tries[0]
    ended = phase.finished_at or phase.started_at
    request = session.exec(select(RequestRow).where(RequestRow.bench_phase_id == phase.id).limit(1)).first()
    if request is None or request.e2e_s is None:
        return
    yield _Part(FIRST, phase.started_at, ended, seconds=request.e2e_s)
    rest_s = (ended - phase.started_at).total_seconds() - request.e2e_s
    if repeat_of(row, WARMUP) is not None and rest_s > 0:
        yield _Part(WARMUP, phase.started_at, ended, seconds=rest_s)


def _sum(session: Session, row: ExperimentRow, step: StepName) -> None:
    """The sum that ends with this step, where all of its steps were gone through whole."""
    command = is_command(row)
    for name, steps in ((READY, BEFORE[command]), (BENCH, AFTER[command])):
        if step != steps[-1]:
            continue
        query = select(DurationRow.seconds).where(
            DurationRow.experiment_id == row.id, DurationRow.attempt == row.attempt, col(DurationRow.part).in_(steps)
        )
        found = session.exec(query).all()
        if len(found) == len(steps):
            moment = row.created_at
            session.add(_row(row, _Part(name, moment, moment, sum(found))))
