"""When a load went from one phase to the next, as seen by whoever watches it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from service.store.durations import BLIND_S
from service.store.tables import utc_now


class LoadPhases:
    """The moments of one load. What another worker saw before is its progress as it left it."""

    def __init__(self, before: Mapping[str, Any] | None = None) -> None:
        self._seen: dict[str, str] = dict((before or {}).get("phases", {}))
        self._late: list[str] = list((before or {}).get("late", ()))
        # A load that is taken up has gone on while nobody looked.
        self._blind_until = None if before is None else time.monotonic() + BLIND_S

    def see(self, phase: str | None) -> dict[str, Any]:
        """Note that the load is in a phase. Gives what is to be kept with the progress."""
        if phase is not None and phase not in self._seen:
            self._seen[phase] = utc_now().isoformat()
            if self._blind_until is not None and time.monotonic() < self._blind_until:
                self._late.append(phase)
        return ({"phases": dict(self._seen)} if self._seen else {}) | ({"late": list(self._late)} if self._late else {})
