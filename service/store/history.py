"""What was seen to take how long, for what waits: looked up for a whole queue at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import and_, func, label
from sqlalchemy import select as select_columns
from sqlmodel import Session, col, select

from service.domain.eta import Spread, whole
from service.domain.eta_wording import Basis, Scope
from service.domain.status import ACTIVE, Status
from service.store.durations import BENCH, READY, repeat_of
from service.store.tables import DurationRow, ExperimentRow

REMEMBERED = 20
"""The latest of a kind count: drivers, disks and engines change."""

ASSUMED_RESTORE_S = 900.0
"""How long production takes to serve again, until a shift or a rehearsal has shown it."""
ASSUMED_PARK_S = 60.0


class Config(NamedTuple):
    """What decides how long an experiment takes."""

    engine_hash: str
    served_model: str
    kind: str
    bench_hash: str
    repeat: int | None


def config_of(row: ExperimentRow) -> Config:
    """Of an experiment that was read whole."""
    repeat = row.spec.get("bench", {}).get("repeat")
    return Config(row.engine_hash, row.served_model, str(row.spec["engine"]["kind"]), row.bench_hash, repeat)


@dataclass(frozen=True)
class Estimate:
    """How long an experiment takes from start to end, and what that stands on."""

    takes: Spread
    basis: Basis


@dataclass(frozen=True)
class Runs:
    """How long one half of an experiment took, by the run it was seen in."""

    seconds: dict[object, float]
    scope: Scope


Key = tuple[str, ...]
Columns = tuple[str, ...]

READY_SCOPES: tuple[tuple[Scope, Columns], ...] = (
    ("configuration", ("engine_hash",)),
    ("model", ("engine_kind", "served_model")),
    ("kind", ("engine_kind",)),
)
BENCH_SCOPES: tuple[tuple[Scope, Columns], ...] = (
    ("configuration", ("bench_hash", "engine_hash")),
    ("model", ("bench_hash", "served_model")),
    ("bench", ("bench_hash", "engine_kind")),
)
"""Where to look, the nearest first."""


def estimates(session: Session, host_id: int, configs: Iterable[Config]) -> dict[Config, Estimate]:
    """For each configuration that an open experiment of this host has and that has a history there.

    At most six queries, however many there are.
    """
    wanted = set(configs)
    ready = _nearest(session, host_id, READY, READY_SCOPES, wanted)
    bench = _nearest(session, host_id, BENCH, BENCH_SCOPES, wanted)
    found: dict[Config, Estimate] = {}
    for config in wanted:
        first, second = ready.get(config), bench.get(config)
        takes = whole(first.seconds, second.seconds) if first and second else None
        if first and second and takes:
            basis = Basis(len(first.seconds), first.scope, len(second.seconds), second.scope, config.kind)
            found[config] = Estimate(takes, basis)
    return found


def bench_of(session: Session, host_id: int, config: Config) -> Runs | None:
    """How long the half after the load took."""
    return _nearest(session, host_id, BENCH, BENCH_SCOPES, {config}).get(config)


def parts(session: Session, host_id: int, row: ExperimentRow, half: str) -> tuple[list[dict[str, float]], Scope] | None:
    """Every part of the latest runs whose `half` (ready, bench) was gone through whole, from the nearest scope that has any.

    Scaled to as many repeats as the experiment asks for.
    """
    config = config_of(row)
    for scope, columns in READY_SCOPES if half == READY else BENCH_SCOPES:
        key = _key(config, columns)
        if key is None:
            continue
        same = [getattr(DurationRow, name) == value for name, value in zip(columns, key, strict=True)]
        same += [] if half == BENCH else [col(DurationRow.bench_hash) == ""]
        runs = (
            select(DurationRow.experiment_id, DurationRow.attempt)
            .where(DurationRow.host_id == host_id, DurationRow.part == half, *same)
            .order_by(col(DurationRow.id).desc())
            .limit(REMEMBERED)
            .subquery()
        )
        shown = (DurationRow.experiment_id, DurationRow.attempt, DurationRow.part, DurationRow.seconds, DurationRow.repeat)
        query = select_columns(*(col(one) for one in shown)).join(
            runs, and_(col(DurationRow.experiment_id) == runs.c.experiment_id, col(DurationRow.attempt) == runs.c.attempt)
        )
        found: dict[object, dict[str, float]] = defaultdict(dict)
        for experiment, attempt, part, seconds, repeat in session.execute(query):
            found[experiment, attempt][part] = _scaled(seconds, repeat, repeat_of(row, part))
        if found:
            return list(found.values()), scope
    return None


def of_shift(session: Session, host_id: int, part: str, assumed_s: float) -> Spread:
    """What a shift of this host takes to `park` or to `restore`."""
    query = select(DurationRow.seconds).where(DurationRow.host_id == host_id, DurationRow.part == part, DurationRow.bench_hash == "")
    found = session.exec(query.order_by(col(DurationRow.id).desc()).limit(REMEMBERED)).all()
    return Spread.of(found or [assumed_s]) if found else Spread(assumed_s, assumed_s, assumed_s)


def _nearest(
    session: Session, host_id: int, part: str, scopes: tuple[tuple[Scope, Columns], ...], wanted: set[Config]
) -> dict[Config, Runs]:
    found: dict[Config, Runs] = {}
    for scope, columns in scopes:
        keys = {config: key for config in wanted - found.keys() if (key := _key(config, columns)) is not None}
        samples = _latest(session, host_id, part, columns) if keys else {}
        for config, key in keys.items():
            if key in samples:
                runs = {run: _scaled(seconds, repeat, config.repeat) for run, seconds, repeat in samples[key]}
                found[config] = Runs(runs, scope)
    return found


def _key(config: Config, columns: Columns) -> Key | None:
    """None where a scope says nothing: a model without a name, or other programs than the one that is to run."""
    if config.kind == "command" and "engine_hash" not in columns:
        return None
    values_of = {
        "engine_hash": config.engine_hash,
        "served_model": config.served_model,
        "engine_kind": config.kind,
        "bench_hash": config.bench_hash,
    }
    if "served_model" in columns and not config.served_model:
        return None
    return tuple(values_of[name] for name in columns)


def _scaled(seconds: float, repeat: int | None, wanted: int | None) -> float:
    """What it would have taken with as many repeats as are wanted now."""
    return seconds * wanted / repeat if repeat and wanted else seconds


Sample = tuple[object, float, int | None]


def _latest(session: Session, host_id: int, part: str, columns: Columns) -> dict[Key, list[Sample]]:
    """The latest samples of each key that an open experiment of the host has: their run, seconds, repeat."""
    # The keys come from the queue itself: one statement whatever they are, which is compiled once.
    kind = col(ExperimentRow.spec)["engine"]["kind"].as_string()
    of_queue = [kind if name == "engine_kind" else getattr(ExperimentRow, name) for name in columns]
    is_open = and_(col(ExperimentRow.host_id) == host_id, col(ExperimentRow.status).in_([Status.QUEUED, *ACTIVE]))
    labelled = [label(name, one) for name, one in zip(columns, of_queue, strict=True)]
    wanted: Any = select_columns(*labelled).where(is_open).distinct().cte("wanted")
    of_part = and_(col(DurationRow.host_id) == host_id, col(DurationRow.part) == part)
    if "bench_hash" not in columns:
        of_part &= col(DurationRow.bench_hash) == ""
    same = and_(*(getattr(DurationRow, name) == wanted.c[name] for name in columns))
    # From where on they count. A window function would read every row of a key, and there may be twenty thousand.
    oldest = (
        select(DurationRow.id)
        .where(of_part, same)
        .order_by(col(DurationRow.id).desc())
        .offset(REMEMBERED - 1)
        .limit(1)
        .correlate(wanted)
        .scalar_subquery()
    )
    shown = (DurationRow.experiment_id, DurationRow.attempt, DurationRow.seconds, DurationRow.repeat)
    query = (
        select_columns(*(col(one) for one in shown), *(getattr(DurationRow, name) for name in columns))
        .select_from(wanted)
        .join(DurationRow, and_(same, col(DurationRow.id) >= func.coalesce(oldest, 0)))
        .where(of_part)
    )
    found: dict[Key, list[Sample]] = defaultdict(list)
    rows: Iterable[Any] = session.connection().execute(query)
    for experiment, attempt, seconds, repeat, *key in rows:
        found[tuple(key)].append(((experiment, attempt), seconds, repeat))
    return dict(found)
