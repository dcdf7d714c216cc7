"""`not_before`: from what a person writes to a moment."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta, tzinfo

from service.domain.errors import SpecError


def resolve_not_before(text: str, now: datetime, zone: tzinfo) -> datetime:
    """`22:00` is the next one in the host's zone; a date and time without a zone is meant in the host's too."""
    try:
        if len(text) <= len("22:00:00"):
            local = now.astimezone(zone)
            clock = time.fromisoformat(text if text.index(":") == 2 else f"0{text}")  # noqa: PLR2004 - 9:00 is 09:00
            at = local.replace(hour=clock.hour, minute=clock.minute, second=clock.second, microsecond=0)
            return at if at > local else at + timedelta(days=1)
        moment = datetime.fromisoformat(text)
        moment = (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise SpecError(f"not_before: {text} is no time", str(error), "write 22:00 or 2026-12-01T22:00") from None
    return moment
