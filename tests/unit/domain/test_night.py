from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from service.domain.curfew import Opening, fits
from service.domain.eta import NOTHING, Spread
from service.domain.night import Active, HostState, Slot, Unknown, Waiting, foresee
from service.domain.window import Window

EVENING = datetime(2026, 11, 30, 20, 0, tzinfo=UTC)
WINDOW = Window.parse("20:00-08:00", ZoneInfo("UTC"))
HOUR = 3600.0


def sure(hours: float) -> Spread:
    return Spread(hours * HOUR, hours * HOUR, hours * HOUR)


def waiting(number: int, hours: float | None, **more: Any) -> Waiting:
    return Waiting(number, None if hours is None else sure(hours), **more)


def host(**more: Any) -> HostState:
    """One that is parked from 20:00 to 08:00; production needs half an hour to come back, and a quarter to be parked."""
    opening = Opening(parks=True, window=WINDOW, allowed=False, restore_s=0.5 * HOUR)
    return HostState(**{"opening": opening, "park": sure(0.25), "restore": sure(0.5), "close_after_s": 600.0, **more})


FREE = HostState(Opening(parks=False, window=None, allowed=False, restore_s=0.0))


def hours(slots: dict[int, Slot]) -> dict[int, tuple[float, float] | Unknown | None]:
    """Start and end in hours after the evening, or why not."""

    def of(slot: Slot) -> tuple[float, float] | Unknown | None:
        if slot.starts_at is None or slot.ends_at is None:
            return slot.unknown
        return tuple(round((at - EVENING).total_seconds() / HOUR, 2) for at in (slot.starts_at, slot.ends_at))  # type: ignore[return-value]

    return {one: of(slot) for one, slot in slots.items()}


def test_one_after_the_other() -> None:
    assert hours(foresee(FREE, [waiting(3, 1), waiting(1, 2), waiting(2, 0.5)], EVENING)) == {3: (0, 1), 1: (1, 3), 2: (3, 3.5)}


def test_what_runs_comes_first() -> None:
    active = Active(9, sure(0.5), waiting(9, 2))
    assert hours(foresee(FREE, [waiting(1, 1)], EVENING, active)) == {9: (0, 0.5), 1: (0.5, 1.5)}


def test_what_waits_for_its_time_or_for_another_is_passed_by() -> None:
    queue = [
        waiting(1, 1, not_before=EVENING + timedelta(hours=5)),
        waiting(2, 1, after=frozenset({3})),
        waiting(3, 1),
        waiting(4, 1, after=frozenset({99})),
        waiting(5, 1, not_before=EVENING - timedelta(hours=5)),
    ]
    assert hours(foresee(FREE, queue, EVENING)) == {3: (0, 1), 2: (1, 2), 5: (2, 3), 1: (5, 6), 4: Unknown.DEPENDS}


def test_a_night_against_its_window() -> None:
    """Until 07:30: the third would end at 08:15, the fourth fits, and the third is first in the next night."""
    found = foresee(host(), [waiting(1, 5), waiting(2, 4), waiting(3, 3), waiting(4, 2)], EVENING)
    assert hours(found) == {1: (0.25, 5.25), 2: (5.25, 9.25), 4: (9.25, 11.25), 3: (24.25, 27.25)}
    assert [found[one].night for one in (1, 2, 4, 3)] == [0, 0, 0, 1]
    refused = found[3].refused
    assert refused is not None
    assert (refused.needs_s, refused.left_s, refused.opens, refused.whole_window) == (
        3 * HOUR, 2.25 * HOUR, EVENING + timedelta(days=1), False,
    )  # fmt: skip


def test_by_day_the_next_night_is_foreseen() -> None:
    noon = EVENING - timedelta(hours=8)
    found = foresee(host(), [waiting(1, 1), waiting(2, 0.1, guest=True)], noon)
    assert hours(found) == {1: (0.25, 1.25), 2: (-8, -7.9)}
    assert found[1].night == 0


def test_what_needs_more_than_a_whole_night_never_runs() -> None:
    found = foresee(host(), [waiting(1, 13), waiting(2, 1)], EVENING)
    assert hours(found) == {2: (0.25, 1.25), 1: Unknown.FAR}
    assert found[1].refused is not None
    assert found[1].refused.whole_window


def test_only_so_many_nights_are_looked_into() -> None:
    assert list(hours(foresee(host(), [waiting(one, 11) for one in range(5)], EVENING)).values())[3:] == [Unknown.FAR, Unknown.FAR]


def test_guests_run_before_anything_is_parked_and_after_it_is_back() -> None:
    queue = [waiting(1, 1), waiting(2, 1, guest=True), waiting(3, 1, guest=True, not_before=EVENING + timedelta(hours=1.5))]
    assert hours(foresee(host(), queue, EVENING)) == {2: (0, 1), 1: (1.25, 2.25), 3: (2.75, 3.75)}


@pytest.mark.parametrize(("due", "start"), [(1.1, 1.1), (1.5, 1.92)])
def test_a_shift_waits_for_what_comes_soon_and_parks_again_for_what_comes_later(due: float, start: float) -> None:
    """Ten minutes are waited for. After that production comes back, half an hour, and has to be parked once more."""
    queue = [waiting(1, 1), waiting(2, 1, not_before=EVENING + timedelta(hours=due))]
    assert hours(foresee(host(parked=True), queue, EVENING)) == {1: (0, 1), 2: (start, start + 1)}


def test_an_admin_s_shift_has_no_end_and_is_used_up() -> None:
    noon = EVENING - timedelta(hours=8)
    opening = Opening(parks=True, window=WINDOW, allowed=True, restore_s=0.5 * HOUR)
    queue = [waiting(1, 1), waiting(2, 1, not_before=noon + timedelta(hours=5))]
    assert hours(foresee(host(opening=opening), queue, noon)) == {1: (-7.75, -6.75), 2: (0.25, 1.25)}


def test_what_runs_too_long_is_cut_and_runs_again() -> None:
    found = foresee(host(parked=True), [waiting(1, 1)], EVENING, Active(9, sure(12), waiting(9, 5)))
    assert found[9].cut
    assert hours({1: found[1]}) == {1: (24.25 + 5, 24.25 + 6)}


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (HostState(FREE.opening, shut=True), Unknown.SHUT),
        (host(opening=Opening(parks=True, window=None, allowed=False, restore_s=0.0)), Unknown.NO_WINDOW),
    ],
)
def test_why_nothing_runs(state: HostState, why: Unknown) -> None:
    assert hours(foresee(state, [waiting(1, 1)], EVENING)) == {1: why}


def test_behind_what_has_no_history_nothing_is_known() -> None:
    found = foresee(FREE, [waiting(1, 1), waiting(2, None), waiting(3, 1), waiting(4, None)], EVENING)
    assert hours(found) == {1: (0, 1), 2: Unknown.NO_HISTORY, 3: Unknown.BEHIND, 4: Unknown.NO_HISTORY}
    assert (found[2].starts_at, found[3].because_of) == (EVENING + timedelta(hours=1), 2)
    running = foresee(FREE, [waiting(1, 1)], EVENING, Active(9, None, waiting(9, None)))
    assert hours(running) == {9: Unknown.NO_HISTORY, 1: Unknown.BEHIND}


def test_what_has_outlasted_history_makes_the_rest_a_least() -> None:
    found = foresee(FREE, [waiting(1, 1)], EVENING, Active(9, NOTHING, waiting(9, 1), late=True))
    assert found[1].at_least


def test_p90_grows_more_slowly_than_the_sum() -> None:
    spread = Spread(HOUR, 1.2 * HOUR, HOUR, (0.156 * HOUR) ** 2)
    last = foresee(FREE, [Waiting(one, spread) for one in range(16)], EVENING)[15]
    assert last.ends_at is not None
    assert last.ends_p90 is not None
    assert (last.ends_at - EVENING) == timedelta(hours=16)
    assert timedelta(hours=0.7) < last.ends_p90 - last.ends_at < timedelta(hours=0.9)


def test_a_thousand_are_walked_through_at_once() -> None:
    queue = [waiting(one, 1, not_before=EVENING + timedelta(hours=one % 7)) for one in range(1000)]
    assert len(foresee(FREE, queue, EVENING)) == 1000


def test_what_has_no_history_may_try() -> None:
    assert fits(EVENING, None, EVENING + timedelta(seconds=1))
    assert not fits(EVENING, None, EVENING)
    assert not fits(EVENING, 60.0, EVENING + timedelta(seconds=60))
    assert fits(EVENING, 1e9, None)
