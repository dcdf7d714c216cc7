"""When a running experiment has to end because its host is wanted back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from sqlmodel import Session

from service.domain.reasons import Reason
from service.store import agenda, hosts
from workers.deadman import DeadMan
from workers.steps.base import ShiftOver


@dataclass
class Curfew:
    """Looks at the host's row, the window and the dead-man."""

    host: str
    dead_man: DeadMan | None = None
    decided: ShiftOver | None = None
    """Why, where it is known already: what a former worker left running ends for the same reason."""

    def over(self, session: Session) -> ShiftOver | None:
        """Why the shift has to end now; None while it may go on."""
        if self.decided is not None:
            return self.decided
        if self.dead_man is not None and self.dead_man.fired is not None:
            return ShiftOver(Reason.HOST_UNREACHABLE, self.dead_man.fired.story)
        row = hosts.by_name(session, self.host)
        if row.give_back_by is not None:
            return ShiftOver(Reason.WINDOW_CLOSED, f"{row.give_back_by} wanted production back")
        now = datetime.now(UTC)
        end = agenda.curfew(session, row, now)
        if end is not None and now >= end:
            takes = agenda.restore_s(session, row.id or 0) / 60
            return ShiftOver(Reason.WINDOW_CLOSED, f"the window closes, and production takes {takes:.0f} min to serve again")
        return None
