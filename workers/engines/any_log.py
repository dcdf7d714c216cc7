"""A log of whichever engine wrote it: every known one reads along until one of them recognises its own words."""

from __future__ import annotations

from workers.engines.base import LoadProgress
from workers.engines.llamacpp_log import LlamacppLoadLog
from workers.engines.load_log import DialectLog
from workers.engines.log_line import Line
from workers.engines.rules import Reading
from workers.engines.sglang_log import SglangLoadLog
from workers.engines.vllm_log import VllmLoadLog

READERS: dict[str, type[VllmLoadLog | SglangLoadLog | LlamacppLoadLog]] = {
    "vllm": VllmLoadLog,
    "sglang": SglangLoadLog,
    "llamacpp": LlamacppLoadLog,
}
"""By the kind that an experiment names."""
_SURE_AFTER = 3
"""Lines in an engine's own words after which the others stop reading."""


class AnyLog:
    """Reads along for every engine; `engine` is None until a line could be no other's."""

    def __init__(self, kind: str | None = None) -> None:
        self.kind = kind
        """None until it is sure."""
        self._logs: list[DialectLog] = [READERS[kind]()] if kind is not None else [make() for make in READERS.values()]
        self._hits = [0] * len(self._logs)
        self._known = kind is not None
        self._only = self._logs[0] if self._known else None

    @property
    def log(self) -> DialectLog:
        """The reader that recognised most; vLLM's where none did."""
        return self._logs[max(range(len(self._logs)), key=lambda index: (self._hits[index], -self._logs[index].rank, -index))]

    @property
    def progress(self) -> LoadProgress:
        """Where the load is by the lines seen so far."""
        return self.log.progress

    def expect_the_end(self) -> None:
        """Somebody asked for a stop: what goes wrong from now on is the noise of it."""
        for log in self._logs:
            log.expect_the_end()

    @property
    def engine(self) -> str | None:
        """The engine's name; None where nothing could tell."""
        return self.log.dialect.name if self._known or any(self._hits) else None

    def take(self, line: Line) -> Reading:
        """Take in one message, and say what it meant to the likeliest engine."""
        if self._only is not None:
            return self._only.take(line)
        readings = []
        words = f"{line.process or ''} {line.source or ''} {line.message}".lstrip()
        for index, log in enumerate(self._logs):
            readings.append(log.take(line))
            if log.dialect.signature.search(words):
                self._hits[index] += 1
        if max(self._hits) >= _SURE_AFTER and sorted(self._hits)[-2] == 0:
            best = self._hits.index(max(self._hits))
            self._logs, self._hits, readings = [self._logs[best]], [self._hits[best]], [readings[best]]
            self._only = self._logs[0]
            self._known, self.kind = True, next(kind for kind, make in READERS.items() if isinstance(self._logs[0], make))
        return readings[self._logs.index(self.log)]
