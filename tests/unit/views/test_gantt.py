from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from expctl.views.gantt import FOLD_W, Stretch, kinds, place_of, scale

START = datetime(2026, 11, 30, 20, 0, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return START + timedelta(minutes=minutes)


def stretch(begin: float, end: float, kind: str = "load") -> Stretch:
    return Stretch(at(begin), at(end), kind)


def test_all_of_the_width_is_used_and_no_more() -> None:
    on = scale([stretch(0, 60)], 60)
    assert on.a_sign == timedelta(minutes=1)
    assert [place for place, _, _ in on.columns()] == list(range(60))


@pytest.mark.parametrize("width", [10, 37, 72, 200])
@pytest.mark.parametrize("minutes", [0.01, 7, 61, 3000])
def test_no_column_lies_outside(width: int, minutes: float) -> None:
    on = scale([stretch(0, minutes), stretch(minutes + 300, 2 * minutes + 300)], width)
    places = [place for place, _, _ in on.columns()]
    assert places == sorted(set(places))
    assert places[-1] < width


def test_time_in_which_nothing_ran_is_folded_only_where_it_is_long() -> None:
    near, far = scale([stretch(0, 10), stretch(49, 60)], 60), scale([stretch(0, 10), stretch(50, 60)], 60)
    assert list(near.folds()) == []
    [(place, idle)] = far.folds()
    assert idle == timedelta(minutes=40)
    used = {column for column, _, _ in far.columns()}
    assert not used & set(range(place, place + FOLD_W))


def test_a_column_shows_what_took_most_of_its_time() -> None:
    lane = [stretch(0, 3, "launch"), stretch(3, 10, "load"), stretch(10, 20, "measure")]
    on = scale([stretch(0, 20)], 2)
    assert kinds(lane, on) == {0: "load", 1: "measure"}
    assert kinds([], on) == {}


def test_a_moment_within_a_fold_has_no_place() -> None:
    on = scale([stretch(0, 10), stretch(100, 110)], 60)
    assert place_of(at(0), on) == 0
    assert place_of(at(50), on) is None
    assert place_of(at(200), on) is None


def test_times_are_round_and_do_not_touch() -> None:
    ticks = list(scale([stretch(3, 183)], 90).ticks())
    assert [f"{moment:%H:%M}" for _, moment in ticks[:3]] == ["20:03", "20:30", "21:00"]
    places = [place for place, _ in ticks]
    assert all(later - earlier > 5 for earlier, later in pairwise(places))


def test_nothing_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        scale([], 80)
