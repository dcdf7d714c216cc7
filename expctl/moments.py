"""Moments of the command line, as people write them, in the zone of whoever asks."""

from __future__ import annotations

from datetime import UTC, datetime

from service.domain.evening import last_evening, moment_behind


def since_evening(text: str | None) -> str:
    """A beginning for the API; without words the last evening."""
    now = datetime.now(UTC).astimezone()
    return (moment_behind(text, now) if text else last_evening(now)).isoformat()


def until(text: str | None) -> dict[str, str]:
    """An end for the API, where one is given."""
    return {"until": moment_behind(text, datetime.now(UTC).astimezone()).isoformat()} if text else {}
