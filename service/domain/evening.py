"""Since when: the last evening, or a moment that lies behind as people write it."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from service.domain import durations
from service.domain.errors import UsageError

EVENING_H = 18
"""A night begins at this hour: what runs before the next one belongs to it."""
DAY = timedelta(days=1)
FORMS = "write 18:00, 12h, `yesterday 20:00`, 2026-11-30 or 2026-11-30T18:00"
_CLOCK = re.compile(r"(?:(yesterday|today)\s+)?(\d{1,2}):(\d{2})")


def last_evening(now: datetime) -> datetime:
    """The last 18:00 by the clock of `now`."""
    evening = now.replace(hour=EVENING_H, minute=0, second=0, microsecond=0)
    return evening if evening <= now else evening - DAY


def moment_behind(text: str, now: datetime) -> datetime:
    """`18:00` is the last such time; `12h` is so long ago; else a date, or a date and time. In the zone of `now` unless it says another.

    UsageError for anything else, and for a moment to come.
    """
    found = _read(text.strip(), now)
    if found > now:
        raise UsageError(f"{text} lies ahead", "what is asked for are things that happened", FORMS)
    return found


def _read(text: str, now: datetime) -> datetime:
    try:
        if clock := _CLOCK.fullmatch(text):
            at = now.replace(hour=int(clock[2]), minute=int(clock[3]), second=0, microsecond=0)
            return at - DAY if clock[1] == "yesterday" or (clock[1] is None and at > now) else at
        if durations.PART.match(text) and "-" not in text:
            return now - timedelta(seconds=durations.seconds(text))
        given = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise UsageError(f"{text!r} is no time", "", FORMS) from None
    return given if given.tzinfo else given.replace(tzinfo=now.tzinfo)
