from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from service.domain.errors import UsageError
from service.domain.evening import last_evening, moment_behind

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 12, 1, 7, 30, tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("clock", "day"), [("07:30", "30"), ("17:59", "30"), ("18:00", "01"), ("23:30", "01")],
)  # fmt: skip
def test_a_night_begins_at_the_last_six_o_clock(clock: str, day: str) -> None:
    evening = last_evening(datetime.fromisoformat(f"2026-12-01T{clock}").replace(tzinfo=BERLIN))
    assert f"{evening:%d %H:%M:%S}" == f"{day} 18:00:00"
    assert evening.tzinfo == BERLIN


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("18:00", "2026-11-30T18:00:00+01:00"),
        ("7:30", "2026-12-01T07:30:00+01:00"),
        ("07:31", "2026-11-30T07:31:00+01:00"),
        ("yesterday 20:00", "2026-11-30T20:00:00+01:00"),
        ("today 01:00", "2026-12-01T01:00:00+01:00"),
        ("12h", "2026-11-30T19:30:00+01:00"),
        ("1h30m", "2026-12-01T06:00:00+01:00"),
        ("2026-11-28", "2026-11-28T00:00:00+01:00"),
        ("2026-11-28T21:00", "2026-11-28T21:00:00+01:00"),
        ("2026-11-28 21:00", "2026-11-28T21:00:00+01:00"),
        ("2026-11-28T21:00:00Z", "2026-11-28T21:00:00+00:00"),
    ],
)
def test_a_moment_that_lies_behind(text: str, moment: str) -> None:
    assert moment_behind(text, NOW).isoformat() == moment


@pytest.mark.parametrize("text", ["", "soon", "25:00", "18:61", "12x", "2026-13-01", f"{'9' * 30}d", "today 23:00", "2026-12-02"])
def test_anything_else_says_how_it_is_written(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        moment_behind(text, NOW)
    assert "18:00" in caught.value.todo
