"""A journal read entry by entry: what the engine, systemd and the kernel say, in bounded memory."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from service.domain.reasons import Reason
from workers.diagnosis.cause import OF_RANK, Cause, Weight
from workers.diagnosis.digest import Digest, Message, digest, digest_entry
from workers.diagnosis.journal_lines import json_entries
from workers.diagnosis.kernel_words import kernel_cause, kernel_warning
from workers.diagnosis.pulse import Pulse
from workers.diagnosis.systemd_words import MANY_RESTARTS, UnitLife
from workers.engines.any_log import AnyLog
from workers.engines.base import LoadProgress
from workers.engines.speakers import Speaker, speaker

MOST_SPEAKERS = 64
MOST_SPEC_LINES = 200
MOST_CAUSES = 64
MOST_ERRORS = 1000
SHOWN = 300


@dataclass
class Attempt:
    """One start of the engine, as far as its log goes."""

    log: AnyLog
    lines: int = 0
    pulse: Pulse = field(default_factory=Pulse)

    @property
    def progress(self) -> LoadProgress:
        """Where it is."""
        return self.log.progress

    def cause(self) -> Cause | None:
        """What its log says that it died of."""
        found = self.progress
        if found.reason is None:
            last = None if found.started_serving or self.log.log.stopping else self.log.log.last_words
            return Cause(Reason.ENGINE_DEAD, Weight.WRAPPER, last[0][:500], last[1]) if last else None
        return Cause(found.reason, OF_RANK[self.log.log.rank], found.evidence or "", found.component)


@dataclass
class Journal:
    """Reads a journal, keeps what it concluded."""

    kind: str | None = None
    """The engine's kind where that is known beforehand."""
    attends: bool = True
    """False: signs of life are looked for afterwards, in the end of the journal alone."""
    unit: UnitLife = field(default_factory=UnitLife)
    before: Attempt | None = None
    """The start before the last one, where there was one."""
    kernel: list[Cause] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    spec_lines: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=MOST_SPEC_LINES))
    method: str | None = None
    """Of speculation, as the engine repeats it."""
    entries: int = 0
    engine_messages: int = 0
    notes: int = 0
    truncated: int = 0
    gap: int = 0
    notices: int = 0
    rebooted: bool = False
    all_levels_parsed: bool = True
    recognised: bool = False
    """Whether anything in it was the talk of an engine."""
    last_message: str = ""

    def __post_init__(self) -> None:
        self.attempt = Attempt(AnyLog(self.kind))
        self._speakers: dict[tuple[str | None, int | None], Speaker] = {}
        self._invocation = ""
        self._errors_at_the_end: set[tuple[str | None, str | None]] = set()

    @property
    def speakers(self) -> list[Speaker]:
        """Who has spoken, in order."""
        return list(self._speakers.values())

    @property
    def errors_at_the_end(self) -> int:
        """Errors that were logged after a stop had been asked for; a traceback is one."""
        return len(self._errors_at_the_end)

    @property
    def stop_requested(self) -> bool:
        """Whether the end was asked for, by systemd or by a signal that the engine tells of."""
        return self.unit.stop_requested or self.attempt.log.log.stopping

    @property
    def unit_causes(self) -> list[Cause]:
        """What systemd says of the last start; of those before too, where that has said nothing yet or is one of many."""
        life = self.unit
        return [*life.earlier, *life.causes] if not self.attempt.lines or (life.restarts or 0) >= MANY_RESTARTS else life.causes

    def feed_text(self, line: str) -> None:
        """Take in a line of text."""
        if line.strip():
            self.take(digest(line))

    def feed_json(self, line: str) -> None:
        """Take in a line of `-o json`."""
        if line.strip():
            for entry in json_entries(line):
                self.take(digest_entry(entry))

    def take(self, found: Digest) -> None:
        """Take in one entry."""
        entry = found.entry
        if found.plain:
            self.entries += 1
            self.engine_messages += 1
            self.last_message = found.messages[-1].line.message[:SHOWN]
            take = self._take
            for message in found.messages:
                take(message)
            return
        self.gap += found.dropped
        if entry.invocation and entry.invocation != self._invocation:
            if self._invocation and self.attempt.lines:
                self._new_attempt()
            self._invocation = entry.invocation
        self.entries += 1
        if entry.message is None:
            self.notes += entry.is_note
            self.truncated += entry.truncated
            self.rebooted = self.rebooted or (entry.rebooted and self.entries > 1)
            return
        if entry.ident == "kernel":
            self._kernel(entry.message)
        elif entry.by_daemon:
            self._systemd(entry.message)
        elif found.messages:
            self.engine_messages += 1
            self.last_message = found.messages[-1].line.message[:SHOWN]
            for message in found.messages:
                self._take(message)

    def _kernel(self, message: str) -> None:
        cause, warning = kernel_cause(message), kernel_warning(message)
        if cause is not None and len(self.kernel) < MOST_CAUSES:
            self.kernel.append(cause)
        if warning is not None and warning not in self.warnings and len(self.warnings) < MOST_CAUSES:
            self.warnings.append(warning)

    def _systemd(self, message: str) -> None:
        started = self.unit.started
        self.unit.take(message)
        if self.unit.started > started and self.attempt.lines:
            self._new_attempt()
        if self.unit.stop_requested:
            self.attempt.log.expect_the_end()

    def _new_attempt(self) -> None:
        self.before = self.attempt
        self.attempt = Attempt(AnyLog(self.kind or self.before.log.kind))

    def _take(self, message: Message) -> None:
        line = message.line
        if message.notice:
            self.notices += 1
        elif message.begins and self._begins_anew(message):
            self._new_attempt()
        attempt = self.attempt
        if self.attends:
            attempt.pulse.take(message)
        if message.notice:
            return
        attempt.lines += 1
        reading = attempt.log.take(line)
        if not self.recognised and (line.level or line.process or reading.tells):
            self.recognised = True
        key = (line.process, line.pid)
        if key not in self._speakers and len(self._speakers) < MOST_SPEAKERS:
            self._speakers[key] = speaker(*key)
        if not message.quiet:
            self._remember(message)
        if line.level == "ERROR" and self.stop_requested and len(self._errors_at_the_end) < MOST_ERRORS:
            self._errors_at_the_end.add((line.stamp, line.source))

    def _begins_anew(self, message: Message) -> bool:
        """Whether it is another start, without systemd's saying so: the last one has served, or has ended and a banner follows."""
        log = self.attempt.log
        return log.progress.started_serving or (message.banner and (log.progress.reason is not None or log.log.stopping))

    def _remember(self, message: Message) -> None:
        if message.level_missed:
            self.all_levels_parsed = False
        if message.method is not None:
            self.method = message.method
        if message.spec is not None:
            self.spec_lines.append(message.spec)
