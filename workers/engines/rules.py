"""What one message of an engine's log says, by that engine's rules. Pure, and remembered: most lines come again and again."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from service.domain.reasons import Reason
from workers.engines.base import LoadPhase

TELLING_CHARS = 1024
"""What a message says stands at its beginning; only its figures may come later."""
REMEMBERED = 2048
"""Messages whose reading is kept."""


class Rank(IntEnum):
    """The lower one wins; among equals the deeper process, then the first in the log."""

    ROOT = 0  # names what has to change
    CONSEQUENCE = 1  # often the echo of another rank's death
    GENERIC = 2  # says that something was refused, the details follow or stand above
    WRAPPER = 3  # says only that a child died: "see root cause above"
    NOTHING = 4


@dataclass(frozen=True)
class Cause:
    """A line that tells why."""

    pattern: re.Pattern[str]
    reason: Reason
    rank: Rank
    loading_only: bool
    """False where it also ends an engine that already served."""


def causes(reason: Reason, rank: Rank, *patterns: str, loading_only: bool = True) -> list[Cause]:
    """One cause a pattern."""
    return [Cause(re.compile(pattern), reason, rank, loading_only) for pattern in patterns]


@dataclass(frozen=True)
class PhaseRule:
    """A line, and the phase that it shows."""

    pattern: re.Pattern[str]
    phase: LoadPhase
    stage: str | None = None
    """None: the stage stays, or is what the pattern's group `stage` says."""

    def position(self, match: re.Match[str]) -> tuple[int | None, int | None, float | None]:
        """Done, total and percent, where the line has a bar."""
        found = match.groupdict()
        if not found.get("total"):
            return None, None, None
        done, total = int(found["done"]), int(found["total"])
        percent = float(found["percent"]) if found.get("percent") else (round(100.0 * done / total, 1) if total else None)
        return done, total, percent


def phases(phase: LoadPhase, *patterns: str, stage: str | None = None) -> list[PhaseRule]:
    """One rule a pattern."""
    return [PhaseRule(re.compile(pattern), phase, stage) for pattern in patterns]


@dataclass(frozen=True)
class FactRule:
    """Figures in a line, by the names they are kept under. `adds`: a second such line is of a further model."""

    pattern: re.Pattern[str]
    names: tuple[str, ...]
    convert: Callable[[str], int | float | str]
    adds: bool = False


def whole(text: str) -> int | float:
    """`399,104` -> 399104; `24.36` stays what it is."""
    plain = text.replace(",", "").rstrip(".")
    return float(plain) if "." in plain else int(plain)


def decimal(text: str) -> float:
    """A figure at the end of a sentence keeps no full stop."""
    return float(text.rstrip("."))


@dataclass(frozen=True)
class Position:
    """A phase, and how far it is."""

    phase: LoadPhase
    done: int | None
    total: int | None
    percent: float | None
    stage: str | None


@dataclass(frozen=True)
class Reading:
    """Everything that one message says."""

    position: Position | None = None
    facts: tuple[tuple[str, int | float | str, bool], ...] = ()
    """Name, value, and whether it is added to what was there."""
    version: str | None = None
    serving: bool = False
    stopping: bool = False
    cause: Cause | None = None
    """While it loads."""
    later_cause: Cause | None = None
    """Once it serves."""
    validation: bool = False
    validation_detail: bool = False
    exception: bool = False

    @property
    def tells(self) -> bool:
        """Whether it is an engine's line at all."""
        return self.position is not None or bool(self.facts) or self.serving or self.stopping or self.cause is not None or self.exception


VALIDATION = re.compile(r"(?<!\d)\d{1,4} validation errors? for \w")
"""Begins pydantic's report; what was wrong follows in `VALIDATION_DETAIL`."""
VALIDATION_DETAIL = re.compile(
    r"^\s+(Value error, |Assertion failed, |Input should |Unexpected keyword |Field required|[^\[]{0,500}\[type=)"
)
EXCEPTION = re.compile(r"^(?:\w+\.){0,12}\w*(?:Error|Exception|Interrupt)(?:: .+)?$")
_SOURCE = re.compile(r"^(?:\s{4,}|\s*File \"|\s*\^+\s*$|\s*raise \w)")
"""A traceback quotes the source, and the source quotes the message before it is filled in."""


_MEMORIES: dict[str, Callable[[str], Reading]] = {}


@dataclass(frozen=True)
class Dialect:
    """How one engine talks."""

    name: str
    signature: re.Pattern[str]
    """No other engine says that."""
    version: re.Pattern[str]
    serving: re.Pattern[str]
    """The HTTP server is up. Not yet proof of readiness."""
    stopping: re.Pattern[str]
    """An ordered end begins: what follows is the noise of taking things down, not a failure."""
    phases: tuple[PhaseRule, ...]
    facts: tuple[FactRule, ...]
    causes: tuple[Cause, ...]

    def reader(self) -> Callable[[str], Reading]:
        """A function from a message to its reading, with one memory for all logs of this dialect."""
        if self.name not in _MEMORIES:
            _MEMORIES[self.name] = lru_cache(maxsize=REMEMBERED)(self.read)
        return _MEMORIES[self.name]

    def read(self, message: str) -> Reading:
        """What the message says."""
        head = message[:TELLING_CHARS]
        source = bool(_SOURCE.match(message)) and not VALIDATION_DETAIL.match(message)
        found = [] if source else [cause for cause in self.causes if cause.pattern.search(head)]
        version = self.version.search(message)
        stripped = message.strip()
        return Reading(
            position=self._position(head),
            facts=self._facts(message),
            version=next(filter(None, version.groups()), None) if version else None,
            serving=bool(self.serving.search(head)),
            stopping=bool(self.stopping.search(head)),
            cause=min(found, key=lambda cause: cause.rank, default=None),
            later_cause=min((cause for cause in found if not cause.loading_only), key=lambda cause: cause.rank, default=None),
            validation=bool(VALIDATION.search(message)),
            validation_detail=bool(VALIDATION_DETAIL.match(message)),
            exception=not source and bool(EXCEPTION.match(stripped)),
        )

    def _position(self, message: str) -> Position | None:
        for rule in self.phases:
            match = rule.pattern.search(message)
            if match is not None:
                done, total, percent = rule.position(match)
                return Position(rule.phase, done, total, percent, rule.stage or match.groupdict().get("stage"))
        return None

    def _facts(self, message: str) -> tuple[tuple[str, int | float | str, bool], ...]:
        found: list[tuple[str, int | float | str, bool]] = []
        for rule in self.facts:
            match = rule.pattern.search(message)
            if match is not None:
                values = [value for value in match.groups() if value is not None]
                found += [(name, _converted(rule, text), rule.adds) for name, text in zip(rule.names, values, strict=False)]
        return tuple(found)


def _converted(rule: FactRule, text: str) -> int | float | str:
    """A figure that is none (`nan`, two full stops) is kept as it is written: no line may stop the reader."""
    try:
        return rule.convert(text)
    except ValueError:
        return text
