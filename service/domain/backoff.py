"""When a message that did not arrive is tried again: the schedule of Standard Webhooks, and what a receiver asks for."""

from __future__ import annotations

from datetime import datetime
from email.utils import parsedate_to_datetime

_MINUTE, _HOUR = 60.0, 3600.0
DELAYS_S = (5.0, 5 * _MINUTE, 30 * _MINUTE, 2 * _HOUR, 5 * _HOUR, 10 * _HOUR, 14 * _HOUR, 20 * _HOUR, 24 * _HOUR)
"""After the first failure, the second, and so on. After one more the message is given up."""

LONGEST_PAUSE_S = _HOUR
"""A receiver may ask for a longer pause; it is asked again after this one."""


def delay_s(failures: int, pause_s: float | None = None) -> float | None:
    """How long to wait after so many failures, 1 or more; None: it is given up. Never less than the pause asked for."""
    if failures > len(DELAYS_S):
        return None
    return max(DELAYS_S[failures - 1], pause_s or 0.0)


def pause_s(retry_after: str | None, now: datetime) -> float | None:
    """The pause that a Retry-After header asks for, seconds or a date, between 1 s and an hour; None where it asks for none."""
    if not retry_after:
        return None
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        seconds = float(text[:9])
    else:
        try:
            moment = parsedate_to_datetime(text)
            seconds = (moment - now).total_seconds()
        except (ValueError, TypeError):
            return None
    return min(max(seconds, 1.0), LONGEST_PAUSE_S)
