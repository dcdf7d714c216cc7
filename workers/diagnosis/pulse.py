"""Signs of life: when an engine last said something that counts."""

from __future__ import annotations

from dataclasses import dataclass

from workers.diagnosis.digest import Message
from workers.diagnosis.journal_lines import between


@dataclass
class Pulse:
    """Of one start of an engine."""

    notices_in_a_row: int = 0
    idle_in_a_row: int = 0
    """Reports of running requests and no token generated, one after the other."""
    last_sign_s: float | None = None
    """When something was last said that is neither a notice nor idle talk."""
    last_time_s: float | None = None
    """When anything was last said."""

    def take(self, message: Message) -> None:
        """Take in one message."""
        if message.time_s is not None:
            self.last_time_s = message.time_s
        if message.notice:
            self.notices_in_a_row += 1
            return
        if message.stuck is not None:
            self.idle_in_a_row = self.idle_in_a_row + 1 if message.stuck else 0
        if message.talk:
            return
        self.notices_in_a_row = 0
        if message.time_s is not None:
            self.last_sign_s = message.time_s

    def silent_s(self, now_s: float | None = None) -> float | None:
        """Seconds since the engine last said something that counts; None where the times are not known."""
        now = now_s if now_s is not None else self.last_time_s
        return None if now is None or self.last_sign_s is None else between(self.last_sign_s, now)
