"""How long a load has taken and will take, as the recorder tells it, whatever is done to the clock."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update
from sqlmodel import select

from service.domain.events import EventType
from service.domain.status import StepName
from service.store import events, experiments
from service.store.tables import DurationRow, StepRow, utc_now
from tests.integration.workers.recording import Hands, Rig


def launched_ago(rig: Rig, **ago: float) -> None:
    with rig.database.write() as session:
        session.execute(update(StepRow).values(started_at=utc_now() - timedelta(**ago)))


def test_the_load_counts_from_the_launch_whoever_works(rig: Rig, hands: Hands) -> None:
    assert rig.recorder.since_launch_s() == 0.0
    rig.recorder.begin(StepName.LAUNCH)
    hands.now += 7
    assert rig.recorder.since_launch_s() == 7
    launched_ago(rig, hours=1)
    later = rig.after_takeover()
    assert 3600 <= later.since_launch_s() < 3700, "nothing better than the wall clock is known"
    assert later.since_launch_s(12.5) == 12.5, "the host knows better"


@pytest.mark.parametrize("hours", [1, -1])
def test_a_wall_clock_that_is_set_ends_no_load(rig: Rig, hands: Hands, hours: int) -> None:
    rig.recorder.begin(StepName.LAUNCH)
    launched_ago(rig, hours=hours)
    hands.now += 7
    assert rig.recorder.since_launch_s() == rig.recorder.since_launch_s(99.0) == 7


@pytest.mark.parametrize("hours", [-1, 25, 24 * 365])
def test_a_wall_clock_that_cannot_be_right_counts_for_nothing(rig: Rig, hands: Hands, hours: int) -> None:
    rig.recorder.begin(StepName.LAUNCH)
    launched_ago(rig, hours=hours)
    later = rig.after_takeover()
    assert later.since_launch_s() == 0
    hands.now += 9
    assert later.since_launch_s() == 9


@pytest.mark.parametrize(("stepped_s", "kept"), [(0, ["clear"]), (3600, []), (-3600, [])])
def test_a_step_during_which_the_clock_was_set_is_no_history(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, stepped_s: int, kept: list[str]
) -> None:
    rig.recorder.begin(StepName.CLEAR)
    later = utc_now() + timedelta(seconds=stepped_s)
    monkeypatch.setattr("workers.recorder.utc_now", lambda: later)
    rig.recorder.end()
    with rig.database.read() as session:
        assert [row.part for row in session.exec(select(DurationRow))] == kept


def loads_of(rig: Rig, phases: dict[str, float], count: int) -> None:
    """A history of loads like this one, each with these phases."""
    with rig.database.write() as session:
        row = experiments.get(session, rig.id)
        own = {"host_id": row.host_id, "engine_hash": row.engine_hash, "engine_kind": "vllm", "served_model": "m"}
        whole = sum(phases.values())
        parts = {"clear": 1.0, "launch": 1.0, "load": whole, "ready": whole + 2} | {f"load:{name}": took for name, took in phases.items()}
        for attempt in range(2, count + 2):
            for part, seconds in parts.items():
                session.add(DurationRow(experiment_id=rig.id, attempt=attempt, part=part, seconds=seconds, **own))
            session.add(DurationRow(experiment_id=rig.id, attempt=attempt, part="bench", seconds=60.0, bench_hash=row.bench_hash, **own))


def load_events(rig: Rig) -> list[dict[str, Any]]:
    with rig.database.read() as session:
        return [one.data for one in events.since(session, experiment_id=rig.id) if one.type == EventType.LOAD_PROGRESS]


def test_the_progress_of_a_load_is_told_with_what_is_left_of_it(rig: Rig) -> None:
    for name in (StepName.CLEAR, StepName.LAUNCH):
        rig.recorder.begin(name)
        rig.recorder.end()
    rig.recorder.begin(StepName.LOAD)
    data = {"phase": "weights_loading", "done": 29, "total": 64, "percent": 45.0}
    rig.recorder.progress(data, event="load")
    loads_of(rig, {"engine_init": 10.0, "weights_loading": 1200.0, "torch_compile": 1000.0, "cuda_graph_capture": 260.0}, 3)
    rig.recorder.progress(data | {"done": 30}, event="load")
    first, second = load_events(rig)
    assert first["eta"] is None, "there is no history yet"
    eta = second.pop("eta")
    assert second == data | {"done": 30}
    assert eta["text"] == "weights 30/64 (45 %), then compiling and CUDA graphs, about 41 min left (p90 47 min)"
    assert eta["following"] == ["torch_compile", "cuda_graph_capture"]
    assert eta["left_s"] == pytest.approx(2460, abs=5)
    assert eta["left_p90_s"] == pytest.approx(2829, abs=6)
    assert eta["basis"] == "by 3 loads of this configuration"
    with rig.database.read() as session:
        assert "eta" not in experiments.get(session, rig.id).progress, "it would be old at once"


def test_the_longest_that_a_phase_ever_took(rig: Rig) -> None:
    assert rig.recorder.longest_s("torch_compile") is None
    loads_of(rig, {"engine_init": 10.0, "torch_compile": 900.0}, 2)
    loads_of(rig, {"engine_init": 30.0, "torch_compile": 100.0}, 1)
    assert [rig.recorder.longest_s(one) for one in ("torch_compile", None, "cuda_graph_capture")] == [900.0, 30.0, None]
