"""vLLM's log of a load: how far it is, what it found, and what it died of. Versions 0.8 to 0.32."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from service.domain.reasons import Reason
from workers.engines.base import LoadPhase, LoadProgress
from workers.engines.vllm_causes import EXCEPTION, STOPPING, VALIDATION, VALIDATION_DETAIL, Rank, cause_of
from workers.engines.vllm_phases import LAST_PHASES, PHASES, SERVING, VERSION, read_facts

PREFIX = re.compile(
    r"^(?:\((?P<process>[^()]+?) pid=\d+\) )*"
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?)?"
)
GLUED = re.compile(r"(?=(?:\([^()]+? pid=\d+\) )*(?<!\) )(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[)")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
MOST_WARNINGS = 50
SHOWN = 500


@dataclass(frozen=True)
class Line:
    """One message without its prefixes. `level` is None for what was printed past the logger: bars, uvicorn, tracebacks."""

    level: str | None
    message: str


def messages(raw: str) -> Iterable[Line]:
    """The messages in one line of the log.

    A bar redraws itself with carriage returns, so that a whole graph capture is one line; and another process may write its
    own message right behind a bar's last frame.
    """
    for frame in COLOUR.sub("", raw).split("\r"):
        for part in GLUED.split(frame) if "[" in frame else [frame]:
            match = PREFIX.match(part)
            message = part[match.end() :].rstrip() if match else part.rstrip()
            if message.strip():
                yield Line(match["level"] if match else None, message)


class VllmLoadLog:
    """Reads a load line by line and keeps only what it concluded."""

    def __init__(self) -> None:
        self._progress = LoadProgress()
        self._rank = Rank.NOTHING
        self._stopping = False
        self._validating = False
        self._exception: str | None = None

    @property
    def progress(self) -> LoadProgress:
        """Where the load is by the lines seen so far."""
        return self._progress

    def feed(self, lines: Iterable[str]) -> LoadProgress:
        """Take in more lines and say where the load is."""
        for raw in lines:
            for line in messages(raw):
                self._take(line)
        return self._progress

    def _take(self, line: Line) -> None:
        if STOPPING.search(line.message):
            self._stopping = True
        # Once it serves, the log holds other people's text too.
        if not self._progress.started_serving:
            self._advance(line.message)
        if line.level == "WARNING":
            self._warn(line.message.strip())
        # What goes wrong is logged as an error or printed by the interpreter; the same words in an INFO line, such as the
        # arguments that vLLM repeats at its start, are somebody's text.
        if line.level in {None, "ERROR", "CRITICAL"} and not self._stopping:
            self._diagnose(line.message)

    def _advance(self, message: str) -> None:
        """Phase, progress, version, figures."""
        facts = read_facts(message, self._progress.facts)
        version = VERSION.search(message)
        if facts or version:
            self._progress = replace(
                self._progress,
                facts={**self._progress.facts, **facts},
                engine_version=self._progress.engine_version or (next(filter(None, version.groups())) if version else None),
            )
        if SERVING.search(message):
            self._progress = replace(
                self._progress, phase=LoadPhase.API_STARTUP, done=None, total=None, percent=None, stage=None, started_serving=True
            )
        else:
            self._enter_phase(message)

    def _enter_phase(self, message: str) -> None:
        for rule in PHASES:
            match = rule.pattern.search(message)
            if match is None:
                continue
            # Every worker logs for itself, so a line of an earlier phase may come late.
            if self._progress.phase is not None and LAST_PHASES[rule.phase] < LAST_PHASES[self._progress.phase]:
                return
            done, total, percent = rule.position(match)
            stage = rule.stage_of(match, self._progress.stage if rule.phase == self._progress.phase else None)
            self._progress = replace(self._progress, phase=rule.phase, done=done, total=total, percent=percent, stage=stage)
            return

    def _warn(self, message: str) -> None:
        shown = message[:SHOWN]
        if shown not in self._progress.warnings and len(self._progress.warnings) < MOST_WARNINGS:
            self._progress = replace(self._progress, warnings=(*self._progress.warnings, shown))

    def _diagnose(self, message: str) -> None:
        """Keep the most telling cause: the root stands above the lines that only say that a child died."""
        loading = not self._progress.started_serving
        cause = cause_of(message, loading=loading)
        if cause is not None:
            # With nothing better than a wrapper, the exception that came first says more.
            evidence = (self._exception or message) if cause.rank == Rank.WRAPPER else message
            self._conclude(cause.reason, cause.rank, evidence)
        elif loading and VALIDATION.search(message):
            self._conclude(Reason.BAD_ARGUMENTS, Rank.GENERIC, message)
            self._validating = True
        elif self._validating and VALIDATION_DETAIL.match(message):
            self._validating = False
            if self._rank == Rank.GENERIC:
                self._progress = replace(self._progress, evidence=message.strip()[:SHOWN])
        elif self._exception is None and EXCEPTION.match(message.strip()):
            self._exception = message.strip()
            if self._rank == Rank.WRAPPER:
                # The wrapper was logged first and the traceback below it.
                self._progress = replace(self._progress, evidence=self._exception[:SHOWN])

    def _conclude(self, reason: Reason, rank: Rank, evidence: str) -> None:
        if rank < self._rank:
            self._rank = rank
            self._progress = replace(self._progress, reason=reason, evidence=evidence.strip()[:SHOWN])
