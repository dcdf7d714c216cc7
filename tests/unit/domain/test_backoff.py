from __future__ import annotations

from datetime import UTC, datetime

import pytest

from service.domain.backoff import delay_s, pause_s

NOW = datetime(2026, 11, 30, 6, 0, tzinfo=UTC)


def test_the_schedule_of_standard_webhooks() -> None:
    hour = 3600.0
    wanted = [5.0, 300.0, 1800.0, 2 * hour, 5 * hour, 10 * hour, 14 * hour, 20 * hour, 24 * hour, None]
    assert [delay_s(failures) for failures in range(1, 11)] == wanted
    assert (delay_s(1, 60.0), delay_s(2, 60.0), delay_s(10, 60.0)) == (60.0, 300.0, None)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("0", 1.0),
        (" 30 ", 30.0),
        ("99999999999999999999999", 3600.0),
        ("Mon, 30 Nov 2026 06:02:00 GMT", 120.0),
        ("Mon, 30 Nov 2026 05:00:00 GMT", 1.0),
        ("Mon, 30 Nov 2026 06:02:00", None),
        ("Fri, 30 Nov 9999 06:02:00 GMT", 3600.0),
    ],
)
def test_a_pause_is_bounded_on_both_sides(header: str | None, seconds: float | None) -> None:
    assert pause_s(header, NOW) == seconds
