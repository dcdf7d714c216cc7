"""An engine's log of a load: how far it is, what it found, and what it died of. The engine's own words are its dialect."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from service.domain.reasons import Reason
from workers.engines.base import LoadPhase, LoadProgress
from workers.engines.figures import figures_of
from workers.engines.log_line import Line, messages, printed_level
from workers.engines.rules import Cause, Dialect, Position, Rank, Reading
from workers.engines.speakers import DEPTH, speaker

MOST_WARNINGS = 50
SHOWN = 500
MOST_EVIDENCE = 2000
"""Of the line that says why. It is kept as it stands, so that it is found again in the log; who draws it may shorten it."""
MAY_TELL = frozenset({None, "ERROR", "CRITICAL"})
"""Levels at which it may be said why it went wrong."""
LAST_PHASES: dict[LoadPhase, int] = {phase: index for index, phase in enumerate(LoadPhase)}
"""Place of each phase in a load."""


@dataclass(slots=True)
class _State:
    """What LoadProgress shows, while it still changes with every line."""

    phase: LoadPhase | None = None
    done: int | None = None
    total: int | None = None
    percent: float | None = None
    stage: str | None = None
    started_serving: bool = False
    reason: Reason | None = None
    evidence: str | None = None
    component: str | None = None
    engine_version: str | None = None
    facts: dict[str, object] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


class DialectLog:
    """Reads a load line by line and keeps only what it concluded."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self._read = dialect.reader()
        self._now = _State()
        self._warned: set[str] = set()
        self._rank = Rank.NOTHING
        self._depth = 0
        self._stopping = False
        self._validating = False
        self._exception: tuple[str, str | None] | None = None
        self._last_words: tuple[str, str | None] | None = None

    @property
    def progress(self) -> LoadProgress:
        """Where the load is by the lines seen so far."""
        now = self._now
        return LoadProgress(
            phase=now.phase,
            done=now.done,
            total=now.total,
            percent=now.percent,
            stage=now.stage,
            started_serving=now.started_serving,
            reason=now.reason,
            evidence=now.evidence,
            component=now.component,
            engine_version=now.engine_version,
            facts=dict(now.facts),
            warnings=tuple(now.warnings),
        )

    @property
    def rank(self) -> Rank:
        """How telling the cause is that was found."""
        return self._rank

    @property
    def exception(self) -> tuple[str, str | None] | None:
        """The first exception that was printed, and who printed it."""
        return self._exception

    @property
    def last_words(self) -> tuple[str, str | None] | None:
        """An exception that the interpreter printed, and who printed it, where no step of the load came after it."""
        return self._last_words

    @property
    def stopping(self) -> bool:
        """Whether an ordered end has begun."""
        return self._stopping

    def expect_the_end(self) -> None:
        """Somebody asked for a stop: what goes wrong from now on is the noise of it."""
        self._stopping = True

    def feed(self, lines: Iterable[str]) -> LoadProgress:
        """Take in more lines and say where the load is."""
        for raw in lines:
            for line in messages(raw):
                self.take(line)
        return self.progress

    def take(self, line: Line) -> Reading:
        """Take in one message, and say what it meant."""
        reading = self._read(line.message)
        if reading.stopping:
            self._stopping = True
        if reading.exception:
            self._last_words = (line.message.strip(), line.process) if line.level is None else self._last_words
        elif self._last_words is not None and (reading.position is not None or reading.serving):
            self._last_words = None
        # Once it serves, the log holds other people's text too.
        if not self._now.started_serving:
            self._advance(reading)
        if line.level == "WARNING":
            self._warn(line.message.strip())
        # What goes wrong is logged as an error or printed by the interpreter; the same words in an INFO line, such as the
        # arguments that vLLM repeats at its start, are somebody's text.
        if not self._stopping and line.level in MAY_TELL and printed_level(line.message) != "INFO":
            self._diagnose(line, reading)
        return reading

    def _advance(self, reading: Reading) -> None:
        """Phase, progress, version, figures."""
        now = self._now
        for name, value, adds in reading.facts:
            earlier = now.facts.get(name)
            known = adds and isinstance(earlier, int | float) and isinstance(value, int | float)
            now.facts[name] = round(earlier + value, 3) if known else value  # type: ignore[operator]
        if reading.version and now.engine_version is None:
            now.engine_version = reading.version
        if reading.serving:
            now.phase, now.started_serving = LoadPhase.API_STARTUP, True
            now.done = now.total = now.percent = now.stage = None
        elif reading.position is not None:
            self._enter(reading.position)

    def _enter(self, found: Position) -> None:
        now = self._now
        # Every worker logs for itself, so a line of an earlier phase may come late.
        if now.phase is not None and LAST_PHASES[found.phase] < LAST_PHASES[now.phase]:
            return
        goes_on = found.phase == now.phase and found.stage in {None, now.stage}
        now.stage = found.stage or (now.stage if goes_on else None)
        now.phase = found.phase
        if found.total is not None or not goes_on:
            now.done, now.total, now.percent = found.done, found.total, found.percent

    def _warn(self, message: str) -> None:
        shown = message[:SHOWN]
        if shown not in self._warned and len(self._warned) < MOST_WARNINGS:
            self._warned.add(shown)
            self._now.warnings.append(shown)

    def _diagnose(self, line: Line, reading: Reading) -> None:
        """Keep the most telling cause: the root stands above the lines that only say that a child died."""
        loading = not self._now.started_serving
        cause = reading.cause if loading else reading.later_cause
        if cause is not None:
            self._conclude(cause, line)
        elif loading and reading.validation:
            self._keep(Reason.BAD_ARGUMENTS, Rank.GENERIC, line.message, line.process)
            self._validating = True
        elif self._validating and reading.validation_detail:
            self._validating = False
            if self._rank == Rank.GENERIC:
                self._show(Reason.BAD_ARGUMENTS, line.message.strip(), self._now.component)
        elif loading and reading.validation_detail:
            # The line that names the object is above what is left of the log.
            self._keep(Reason.BAD_ARGUMENTS, Rank.GENERIC, line.message, line.process)
        elif self._exception is None and reading.exception:
            self._exception = (line.message.strip(), line.process)
            if self._rank == Rank.WRAPPER:
                # The wrapper was logged first and the traceback below it.
                self._now.evidence, self._now.component = self._exception[0][:MOST_EVIDENCE], line.process

    def _conclude(self, cause: Cause, line: Line) -> None:
        if cause.rank == Rank.WRAPPER and self._exception is not None:
            # With nothing better than a wrapper, the exception that came first says more.
            self._keep(cause.reason, cause.rank, *self._exception)
        else:
            self._keep(cause.reason, cause.rank, line.message, line.process)

    def _keep(self, reason: Reason, rank: Rank, evidence: str, process: str | None) -> None:
        depth = DEPTH[speaker(process, None).role]
        deeper = process is not None and reason == self._now.reason and depth < self._depth
        if rank > self._rank or (rank == self._rank and not deeper):
            # Of equal causes the one nearer to the root counts: the same, said by a process that is further down.
            return
        self._rank, self._depth = rank, depth
        self._show(reason, evidence.strip(), process)

    def _show(self, reason: Reason, evidence: str, process: str | None) -> None:
        """Keep a cause with the figures in its line."""
        figures = figures_of(reason, evidence, self._now.facts)
        component = figures.pop("component", process)
        self._now.facts.update(figures)
        self._now.reason, self._now.evidence = reason, evidence[:MOST_EVIDENCE]
        self._now.component = None if component is None else str(component)
