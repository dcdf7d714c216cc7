from __future__ import annotations

import math
import statistics
from typing import Any

import pytest
from sqlmodel import Session

from service.domain.spec import Spec
from service.domain.status import Outcome
from service.store import experiments, repeats, submission
from service.store.database import Database
from service.store.tables import BenchPhaseRow, RequestRow, utc_now


@pytest.fixture(autouse=True)
def _host(host: str) -> None:
    """Every test has one."""


def measured(
    session: Session, *levels: dict[str, list[float]], model: str = "m", facts: dict[str, Any] | None = None, **more: Any
) -> BenchPhaseRow:
    """A finished experiment that measured these tokens/s, a dictionary a level."""
    engine = more.pop("engine", {"kind": "vllm", "model": model})
    row = submission.submit(session, Spec.model_validate({"name": "x", "engine": engine, "bench": {"concurrency": [1, 8]}}), "me")
    row = experiments.get(session, row.id or 0)
    row.status, row.outcome, row.finished_at, row.facts = "finished", more.pop("outcome", Outcome.SUCCEEDED), utc_now(), facts or {}
    row.reason = None if row.outcome == Outcome.SUCCEEDED else "bench_error"
    session.add(row)
    for level, speeds in zip((1, 8), levels, strict=False):
        phase = BenchPhaseRow(
            experiment_id=row.id or 0, attempt=row.attempt, kind="measured", concurrency=level, finished_at=utc_now(), **more
        )
        session.add(phase)
        session.flush()
        for prompt, values in speeds.items():
            for repeat, tps in enumerate(values):
                session.add(RequestRow(bench_phase_id=phase.id or 0, prompt=prompt, repeat=repeat, ok=True, tps=tps))
    session.flush()
    return phase


def test_loads_of_one_configuration_are_pooled_over_configurations(database: Database) -> None:
    with database.write() as session:
        for tps in (100.0, 102.0, 99.0):
            measured(session, {"a": [tps, tps], "b": [tps / 2]}, {"a": [999.0 / tps]})
        for tps in (50.0, 49.0):
            measured(session, {"a": [tps]}, model="n")
        measured(session, {"a": [10.0]}, model="once")
        found = repeats.between_loads(session, 1)
    assert found is not None
    squares = 2 * statistics.variance([math.log(tps) for tps in (100, 102, 99)]) + statistics.variance([math.log(50), math.log(49)])
    assert (found.from_, found.n) == ("history", 3)
    assert found.value == pytest.approx(math.sqrt(squares / 3))


@pytest.mark.parametrize(
    "more",
    [
        {"facts": {"driver": "2"}},
        {"facts": {"engine_version": "2"}},
        {"model": "other"},
        {"outcome": Outcome.INVALID},
        {"superseded": True},
    ],
)
def test_what_is_not_a_second_load_of_the_same_says_nothing(database: Database, more: dict[str, Any]) -> None:
    with database.write() as session:
        measured(session, {"a": [100.0]})
        measured(session, {"a": [50.0]}, **more)
        assert repeats.between_loads(session, 1) is None
        assert repeats.between_loads(session, 2) is None


def test_a_server_that_was_measured_twice_was_not_loaded_twice(database: Database) -> None:
    with database.write() as session:
        for tps in (100.0, 101.0):
            measured(session, {"a": [tps]}, engine={"kind": "endpoint", "base_url": "http://127.0.0.1:1/v1"})
        assert repeats.between_loads(session, 1) is None
