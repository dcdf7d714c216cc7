"""Moments of the command line, as people write them, in the zone of whoever asks."""

from __future__ import annotations

from datetime import UTC, datetime

from service.domain.durations import seconds
from service.domain.errors import UsageError
from service.domain.evening import last_evening, moment_behind

BEHIND = {
    "18:00": "the last time that it was so late; the last 18:00 is the default",
    "yesterday 20:00": "yesterday by the calendar; `today 06:00` likewise",
    "12h": "so long ago, as a duration",
    "2026-11-30": "the beginning of that day",
    "2026-11-30T18:00": "that moment; with a zone as in RFC 3339: 2026-11-30T18:00+01:00, 2026-11-30T17:00Z",
}
"""A form of what lies behind, and what is meant by it."""
DURATIONS = {
    "90s": "seconds; of a --timeout `90` says the same",
    "30m": "minutes",
    "8h": "hours",
    "7d": "days",
    "500ms": "milliseconds",
    "1h30m": "several together",
}
AHEAD = {
    "22:00": "the next time that it is so late",
    "2026-12-01T22:00": "that moment, with a zone if you like",
    "20:00-08:00": "a window: these hours of every day, over midnight where it ends earlier than it begins",
}
"""A form of what is to come, and what is meant by it."""


def duration(option: str, text: str) -> float:
    """Seconds, as an option gives them; UsageError where they are none."""
    try:
        return seconds(text)
    except ValueError as error:
        raise UsageError(f"{option} {text} is no time", str(error), "see `expctl help times`") from None


def time_limit(text: str) -> float:
    """Seconds of a --timeout. A number alone is seconds there, as people are used to; how old something is needs its unit."""
    return float(text) if text.strip().isdecimal() else duration("--timeout", text)


def since_evening(text: str | None) -> str:
    """A beginning for the API; without words the last evening."""
    now = datetime.now(UTC).astimezone()
    return (moment_behind(text, now) if text else last_evening(now)).isoformat()


def until(text: str | None) -> dict[str, str]:
    """An end for the API, where one is given."""
    return {"until": moment_behind(text, datetime.now(UTC).astimezone()).isoformat()} if text else {}
