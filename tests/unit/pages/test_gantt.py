"""The night as a picture: what is folded, what is drawn where."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from service.pages.gantt import FOLD_W, LEFT, RIGHT, WIDTH, Bar, Lane, Picture, Span, picture

EVENING = datetime(2026, 11, 30, 18, 0, tzinfo=UTC)


def at(hours: float) -> datetime:
    return EVENING + timedelta(hours=hours)


def drawn(*spans: tuple[float, float], now: float = 20.0) -> Picture:
    bars = [
        Bar(number, f"x{number}", "good", "Succeeded", Span(at(a), at(b), "whole"), [Span(at(a), at(b), "load")])
        for number, (a, b) in enumerate(spans, 1)
    ]
    found = picture([Lane("gpu", bars)], at(now))
    assert found is not None
    return found


def test_nothing_is_no_picture() -> None:
    assert picture([], EVENING) is None
    assert picture([Lane("gpu", [])], EVENING) is None


def test_bars_follow_one_another_in_proportion_and_fill_the_width() -> None:
    [lane] = drawn((0, 1), (1, 3)).lanes
    first, second = (bar.rect for bar in lane.bars)
    assert first.x + first.width == pytest.approx(second.x, abs=0.2)
    assert second.width == pytest.approx(2 * first.width, rel=0.01)
    assert first.x > LEFT
    assert second.x + second.width < WIDTH - RIGHT


def test_hours_in_which_nothing_happens_are_folded_and_said() -> None:
    found = drawn((0, 1), (9, 10))
    [(place, text)] = found.folds
    first, second = (bar.rect for bar in found.lanes[0].bars)
    assert text == "8 h"
    assert first.x + first.width < place - FOLD_W / 2 < place + FOLD_W / 2 < second.x
    assert all(not place - FOLD_W / 2 < x < place + FOLD_W / 2 for x, _ in found.ticks)


def test_a_short_pause_is_not_folded() -> None:
    assert drawn((0, 1), (1.4, 2)).folds == []


def test_ticks_are_round_times_that_do_not_overlap() -> None:
    ticks = drawn((0, 6), (6, 7)).ticks
    assert len(ticks) >= 6
    assert all((moment.minute, moment.second) == (0, 0) for _, moment in ticks)
    assert all(after[0] - before[0] > 44 for before, after in pairwise(ticks))


def test_the_present_is_drawn_where_it_is_near_and_left_out_where_it_is_not() -> None:
    assert drawn((0, 1), now=0.5).now is not None
    assert drawn((0, 1), now=1.2).now is not None
    assert drawn((0, 1), now=20).now is None


def test_a_second_can_still_be_seen_and_has_no_label() -> None:
    found = drawn((0, 6), (6, 6.0002))
    bar = found.lanes[0].bars[1]
    assert bar.rect.width == 2.0
    assert bar.label == ""
    assert found.lanes[0].bars[0].label == "1 x1"
