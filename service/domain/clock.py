"""Times of the day as people read them."""

from __future__ import annotations

from datetime import datetime, tzinfo


def clock(moment: datetime, now: datetime, zone: tzinfo) -> str:
    """Such as `07:20`, with the date where that is more than a day away. `now` is in the reader's zone.

    It is shown on the host's own clock, for that is how its window is written; the zone is named where the reader's clock
    shows another time.
    """
    local = moment.astimezone(zone)
    date = f"{local:%d %b} " if abs((moment - now).total_seconds()) >= 24 * 3600 else ""
    named = f" {local:%Z}" if local.utcoffset() != moment.astimezone(now.tzinfo).utcoffset() else ""
    return f"{date}{local:%H:%M}{named}"


def span(seconds: float) -> str:
    """Such as `40 s`, `41 min`, `1 h 20 min`."""
    whole = max(0, round(seconds))
    if whole < 100:  # noqa: PLR2004 - two digits of seconds read well
        return f"{whole} s"
    minutes = round(whole / 60)
    if minutes < 60:  # noqa: PLR2004 - minutes of an hour
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"
