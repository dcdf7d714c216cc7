"""A host's window: the hours of each day in which its production may be parked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

SHAPE = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})")
DAY_MINUTES = 24 * 60


@dataclass(frozen=True)
class Window:
    """From `opens` to `closes` by the clock on the wall in `zone`; over midnight where it closes earlier than it opens."""

    opens: time
    closes: time
    zone: ZoneInfo

    @classmethod
    def parse(cls, text: str, zone: ZoneInfo) -> Window:
        """`20:00-08:00`; ValueError says how it is written."""
        found = SHAPE.fullmatch(text.strip())
        if not found:
            raise ValueError("a window is written like 20:00-08:00")
        numbers = [int(number) for number in found.groups()]
        opens, closes = numbers[0] * 60 + numbers[1], numbers[2] * 60 + numbers[3]
        if max(opens, closes) > DAY_MINUTES or max(numbers[1], numbers[3]) > 59 or opens % DAY_MINUTES == closes % DAY_MINUTES:  # noqa: PLR2004 - minutes of an hour
            raise ValueError("a window is written like 20:00-08:00, and lasts less than a day")
        return cls(_time(opens), _time(closes), zone)

    def closes_at(self, now: datetime) -> datetime | None:
        """When the window that is open at `now` closes; None where it is shut."""
        local = now.astimezone(self.zone)
        for day in (-1, 0):
            start, end = self._on(local + timedelta(days=day))
            if start <= now < end:
                return end
        return None

    def next_opening(self, now: datetime) -> datetime:
        """When it opens next, after `now`."""
        local = now.astimezone(self.zone)
        days = (self._on(local + timedelta(days=day)) for day in range(-1, 4))
        # Where clocks go forward, a window may begin in the hour that is left out and be over when it is past.
        return next(start for start, end in days if now < start < end)

    def _on(self, day: datetime) -> tuple[datetime, datetime]:
        """The window that opens on a calendar day. Computed by wall clock, so that a change to summer time moves nothing."""
        start = datetime.combine(day.date(), self.opens, self.zone)
        last = day.date() + timedelta(days=int(self.closes <= self.opens))
        return start.astimezone(UTC), datetime.combine(last, self.closes, self.zone).astimezone(UTC)


def _time(minutes: int) -> time:
    return time(minutes % DAY_MINUTES // 60, minutes % 60)
