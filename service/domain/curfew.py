"""When a host may be had, and until when: the rules that workers choose by and that forecasts foresee."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from service.domain.window import Window


@dataclass(frozen=True)
class Opening:
    """When what serves on a host by day may be parked."""

    parks: bool
    """Something serves there by day."""
    window: Window | None
    allowed: bool
    """An admin allowed one shift outside the window."""
    restore_s: float
    """How long production takes to serve again: kept free at the window's end."""

    def may_open(self, now: datetime) -> bool:
        """Whether the host may be had at `now`."""
        return not self.parks or self.allowed or (self.window is not None and self.window.closes_at(now) is not None)

    def curfew(self, now: datetime) -> datetime | None:
        """When experiments must have ended so that production serves again by the end of the window. None: no end is set."""
        if not self.parks or self.window is None:
            return None
        closes = self.window.closes_at(now)
        if closes is None:
            # The window is over. An admin's shift has no end of its own; any other one is late.
            return None if self.allowed else now
        return closes - timedelta(seconds=self.restore_s)


def fits(now: datetime, takes_s: float | None, end: datetime | None) -> bool:
    """Whether what takes so long, in nine of ten cases, ends in time. What has no history may try: it is cut if it does not."""
    return end is None or now + timedelta(seconds=takes_s or 0.0) < end
