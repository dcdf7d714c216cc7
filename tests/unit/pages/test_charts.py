"""Charts' geometry and series."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from service.domain.events import Event, EventType
from service.domain.measurement import Distribution, PhaseResult, PhaseSummary
from service.pages import charts


def phase(concurrency: int, output_tps: float | None) -> PhaseResult:
    none = Distribution()
    summary = PhaseSummary(
        requests=1, failed=0, valid=True, duration_s=1.0, output_tokens=None, output_tps=output_tps,
        ttft_ms=none, tpot_ms=none, itl_ms=none, e2e_ms=none, tps=none,
    )  # fmt: skip
    return PhaseResult(concurrency=concurrency, requests=[], summary=summary)


def test_shares_stand_beside_one_another_by_position() -> None:
    found = charts.acceptance([("baseline 1", None), ("2", [0.5, 0.25]), ("3", [1.0])])
    assert found is not None
    assert found.sides == [(1, "2"), (2, "3")]
    assert [(bar.side, bar.height) for bar in found.bars] == [(1, charts.PLOT_H * 0.5), (1, charts.PLOT_H * 0.25), (2, charts.PLOT_H)]
    assert len({bar.x for bar in found.bars}) == 3
    assert [name for _, name in found.ticks] == ["1", "2"]
    assert found.bars[0].text == "2, position 1: 50%"


def test_what_nobody_reports_is_no_chart() -> None:
    assert charts.acceptance([("1", None), ("2", [])]) is None
    assert charts.forest([("code", None, None)]) is None
    assert charts.by_level([("1", [phase(1, 5.0)])]) is None
    assert charts.over_time([], "tps", "tok/s") is None


def test_an_interval_is_drawn_about_its_change_and_coloured_only_where_it_excludes_none() -> None:
    found = charts.forest([("code", -0.2, [-0.25, -0.15]), ("maths", 0.1, [-0.02, 0.2]), ("new", 0.3, [0.2, 0.4]), ("one", 0.05, None)])
    assert found is not None
    assert [row.tone for row in found.rows] == ["bad", "quiet", "good", "quiet"]
    for row in found.rows[:3]:
        assert row.low is not None
        assert row.high is not None
        assert row.low < row.x < row.high
    code, _, new, one = found.rows
    assert code.x < found.zero < new.x
    assert one.low is None
    assert one.text == "+5.0 % (no interval)"
    assert code.text == "-20.0 % [-25.0, -15.0]"
    assert [text for _, text in found.ticks] == ["-40 %", "-30 %", "-20 %", "-10 %", "0", "+10 %", "+20 %", "+30 %", "+40 %"]


@pytest.mark.parametrize("change", [0.0, 0.001, 0.5, 3.0, 40.0])
def test_ticks_stay_few_whatever_the_change(change: float) -> None:
    found = charts.forest([("x", change, None)])
    assert found is not None
    assert 3 <= len(found.ticks) <= 9
    assert charts.NAME_W <= found.rows[0].x <= charts.FOREST_W - charts.FIGURE_W


def test_levels_that_one_side_lacks_are_gaps() -> None:
    found = charts.by_level([("baseline 1", [phase(1, 60.0), phase(8, 300.0)]), ("2", [phase(8, 250.0), phase(4, None)])])
    assert found == {
        "x": [1, 4, 8], "time": False, "unit": "tok/s",
        "lines": [{"name": "baseline 1", "y": [60.0, None, 300.0]}, {"name": "2", "y": [None, None, 250.0]}],
    }  # fmt: skip


def test_progress_without_the_figure_is_left_out() -> None:
    begun = datetime(2026, 11, 30, tzinfo=UTC)
    events = [
        Event(id=n, at=begun + timedelta(seconds=n), type=EventType.BENCH_PROGRESS, actor="w", data=data)
        for n, data in enumerate([{"tps": 5.0}, {"tps": None}, {}, {"tps": 7.5}])
    ]
    found = charts.over_time(events, "tps", "tok/s")
    assert found is not None
    assert found["lines"][0]["y"] == [5.0, 7.5]
    assert found["x"] == [begun.timestamp(), begun.timestamp() + 3]
