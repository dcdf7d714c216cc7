from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from service.domain.window import Window

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, zone: ZoneInfo = BERLIN) -> datetime:
    """A time on the wall; `+1` behind it: the second time that the clock shows it."""
    plain, _, again = text.partition("+")
    return datetime.fromisoformat(plain).replace(tzinfo=zone, fold=int(again or 0)).astimezone(UTC)


def shown(moment: datetime | None) -> str | None:
    return f"{moment.astimezone(BERLIN):%Y-%m-%d %H:%M}" if moment else None


@pytest.mark.parametrize(
    ("window", "now", "closes", "opens"),
    [
        ("20:00-08:00", "2026-11-30 19:59:59", None, "2026-11-30 20:00"),
        ("20:00-08:00", "2026-11-30 20:00", "2026-12-01 08:00", "2026-12-01 20:00"),
        ("20:00-08:00", "2026-12-01 00:00", "2026-12-01 08:00", "2026-12-01 20:00"),
        ("20:00-08:00", "2026-12-01 07:59:59", "2026-12-01 08:00", "2026-12-01 20:00"),
        ("20:00-08:00", "2026-12-01 08:00", None, "2026-12-01 20:00"),
        ("09:00-17:00", "2026-11-30 12:00", "2026-11-30 17:00", "2026-12-01 09:00"),
        ("09:00-17:00", "2026-11-30 17:00", None, "2026-12-01 09:00"),
        ("20:00-24:00", "2026-11-30 23:59", "2026-12-01 00:00", "2026-12-01 20:00"),
        ("00:00-06:00", "2026-11-30 23:59", None, "2026-12-01 00:00"),
        ("24:00-06:00", "2026-12-01 00:00", "2026-12-01 06:00", "2026-12-02 00:00"),
        ("12:00-11:59", "2026-11-30 11:58", "2026-11-30 11:59", "2026-11-30 12:00"),
    ],
)
def test_when_it_is_open(window: str, now: str, closes: str | None, opens: str) -> None:
    found = Window.parse(window, BERLIN)
    assert (shown(found.closes_at(at(now))), shown(found.next_opening(at(now)))) == (closes, opens)


@pytest.mark.parametrize(
    ("window", "now", "closes", "hours"),
    [
        # Clocks go forward on 29 March at 2 and back on 25 October at 3.
        ("20:00-08:00", "2026-03-28 20:00", "2026-03-29 08:00", 11),
        ("20:00-08:00", "2026-10-24 20:00", "2026-10-25 08:00", 13),
        ("02:30-04:00", "2026-10-25 02:30", "2026-10-25 04:00", 2.5),
        ("02:30-04:00", "2026-10-25 02:30+1", "2026-10-25 04:00", 1.5),
    ],
)
def test_the_wall_clock_counts_when_clocks_are_changed(window: str, now: str, closes: str, hours: float) -> None:
    found = Window.parse(window, BERLIN).closes_at(at(now))
    assert shown(found) == closes
    assert found is not None
    assert (found - at(now)).total_seconds() == hours * 3600


def test_an_hour_that_does_not_exist_opens_no_window() -> None:
    """At 2 the clock goes to 3, so that 02:15 is 03:15, and the window has closed by then."""
    window = Window.parse("02:15-03:05", BERLIN)
    before = at("2026-03-29 01:59")
    opening = window.next_opening(before)
    assert window.closes_at(opening) is not None, "what is said to open must be open then"
    assert shown(opening) == "2026-03-30 02:15"


def test_each_zone_has_its_own_night() -> None:
    now = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
    assert Window.parse("20:00-08:00", ZoneInfo("Asia/Tokyo")).closes_at(now) == datetime(2026, 11, 30, 23, 0, tzinfo=UTC)
    assert Window.parse("20:00-08:00", ZoneInfo("America/New_York")).closes_at(now) == datetime(2026, 11, 30, 13, 0, tzinfo=UTC)
    assert Window.parse("20:00-08:00", ZoneInfo("UTC")).closes_at(now) is None


@pytest.mark.parametrize(
    "text",
    ["", "20:00", "20:00-", "20-08", "20:00 - 08:00", "20:00-08:00-09:00", "25:00-08:00", "20:60-08:00", "24:01-08:00", "-1:00-08:00"],
)
def test_what_is_no_window(text: str) -> None:
    with pytest.raises(ValueError, match="a window is written like 20:00-08:00"):
        Window.parse(text, BERLIN)


@pytest.mark.parametrize("text", ["20:00-20:00", "00:00-24:00", "24:00-00:00"])
def test_a_whole_day_is_no_window(text: str) -> None:
    with pytest.raises(ValueError, match="less than a day"):
        Window.parse(text, BERLIN)


def test_blanks_around_and_one_digit() -> None:
    assert Window.parse(" 9:00-8:00 ", BERLIN) == Window.parse("09:00-08:00", BERLIN)
