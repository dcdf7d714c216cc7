"""What an engine logs about speculation while it is measured: the fallback where its counters are not to be had."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from service.domain.speculation import Speculation
from service.domain.speculation_log import of_log_lines
from workers.engines.log_line import messages
from workers.engines.spec_lines import spec_line


class SpeculationLog:
    """Listens to the log during one bench phase, and keeps nothing of it but the figures of its summary lines."""

    def __init__(self) -> None:
        self._found: list[dict[str, Any]] = []

    def hear(self, lines: Iterable[str]) -> None:
        """Take in lines as they were logged."""
        found = (spec_line(message.message) for line in lines for message in messages(line))
        self._found += [figures for figures in found if figures is not None]

    def instead_of(self, shown: Speculation | None) -> Speculation | None:
        """The account of the counters or of the answers, and the log's where neither says anything."""
        told = of_log_lines(self._found) if shown is None or shown.status == "not_reported" else None
        if told is None:
            return shown
        return told.model_copy(update={"warnings": [*(shown.warnings if shown else ()), *told.warnings]})
