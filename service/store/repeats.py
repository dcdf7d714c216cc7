"""How much loads of one configuration differ on a host, from what was measured there."""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import select as select_columns
from sqlmodel import Session, col

from service.domain.effect import BetweenLoad, Samples, between_from_history
from service.domain.status import Outcome
from service.store.tables import BenchPhaseRow, ExperimentRow, RequestRow

REMEMBERED = 200
"""The latest experiments of a host count: its drivers and its cooling change."""
_SAME_SERVER = frozenset({"endpoint", "command"})
"""Kinds whose experiments load nothing: measuring one server twice says nothing about two loads."""

Speeds = dict[str, list[float]]


def between_loads(session: Session, host_id: int) -> BetweenLoad | None:
    """The relative standard deviation of tokens/s between loads, pooled over configurations; None where none was loaded twice.

    A configuration is an engine's arguments, a benchmark, a driver and an engine version. Levels of concurrency of one load share its
    shift, so only the first of them counts.
    """
    groups = [group for group in _configurations(session, host_id) if len(group) > 1]
    measured = _speeds(session, [one for group in groups for one in group])
    return between_from_history([[_load(measured[one]) for one in group if one in measured] for group in groups])


def _load(speeds: Speeds) -> Samples:
    return {prompt: [values] for prompt, values in speeds.items()}


def _configurations(session: Session, host_id: int) -> list[list[tuple[int, int]]]:
    """Experiments that succeeded, with their attempts, by configuration."""
    shown = (ExperimentRow.id, ExperimentRow.attempt, ExperimentRow.engine_hash, ExperimentRow.bench_hash, ExperimentRow.facts)
    kind = col(ExperimentRow.spec)["engine"]["kind"].as_string()
    query = (
        select_columns(*(col(one) for one in shown))
        .where(col(ExperimentRow.host_id) == host_id, col(ExperimentRow.outcome) == Outcome.SUCCEEDED, kind.not_in(_SAME_SERVER))
        .order_by(col(ExperimentRow.id).desc())
        .limit(REMEMBERED)
    )
    found: dict[tuple[object, ...], list[tuple[int, int]]] = defaultdict(list)
    for one, attempt, engine, bench, facts in session.execute(query):
        found[engine, bench, facts.get("driver"), facts.get("engine_version")].append((one, attempt))
    return list(found.values())


def _speeds(session: Session, wanted: list[tuple[int, int]]) -> dict[tuple[int, int], Speeds]:
    """Tokens/s by prompt, of the first level that each experiment measured."""
    if not wanted:
        return {}
    shown = (BenchPhaseRow.experiment_id, BenchPhaseRow.attempt, BenchPhaseRow.id, RequestRow.prompt, RequestRow.tps)
    query = (
        select_columns(*(col(one) for one in shown))
        .join(RequestRow, col(RequestRow.bench_phase_id) == col(BenchPhaseRow.id))
        .where(
            col(BenchPhaseRow.experiment_id).in_([experiment for experiment, _ in wanted]),
            col(BenchPhaseRow.kind) == "measured",
            col(BenchPhaseRow.superseded).is_(False),
            col(BenchPhaseRow.finished_at).is_not(None),
            col(RequestRow.ok).is_(True),
            col(RequestRow.tps) > 0,
        )
        .order_by(col(BenchPhaseRow.id))
    )
    first: dict[tuple[int, int], int] = {}
    found: dict[tuple[int, int], Speeds] = {}
    for experiment, attempt, phase, prompt, tps in session.execute(query):
        key = (experiment, attempt)
        if first.setdefault(key, phase) == phase:
            found.setdefault(key, {}).setdefault(prompt, []).append(tps)
    asked = set(wanted)
    return {key: speeds for key, speeds in found.items() if key in asked}
