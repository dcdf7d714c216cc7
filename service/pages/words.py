"""Figures and times as pages write them: the same words as on the command line and in messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from service.domain.clock import span
from service.domain.figures import change, number
from service.domain.status import Status

UNKNOWN = "\N{EN DASH}"
DAY_S, FRESH_S = 86400, 20 * 3600
MS = 1000.0
_TONES = {"succeeded": "good", "failed": "bad", "invalid": "bad", "cancelled": "quiet"}
_WORDS = {"better": "good", "worse": "bad", "no_difference_shown": "quiet", "not_comparable": "warn", "invalid": "bad"}


def clock(moment: datetime | None, *, seconds: bool = False) -> Markup | str:
    """Such as `22:04`, with the date where it is another day; the whole of it when pointed at."""
    if moment is None:
        return UNKNOWN
    local = moment.astimezone()
    far = abs((moment - datetime.now(UTC)).total_seconds()) > FRESH_S
    hour = f"{local:%H:%M:%S}" if seconds else f"{local:%H:%M}"
    text = f"{local.day} {local:%b} {hour}" if far else hour
    iso = local.isoformat(timespec="seconds")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(iso, iso, text)


def took(item: Any) -> str:
    """How long something that has `started_at` and `finished_at` ran, or has run until now."""
    if item.started_at is None:
        return UNKNOWN
    return span(((item.finished_at or datetime.now(UTC)) - item.started_at).total_seconds())


def seconds(value: float | None) -> str:
    """Such as `3 min`."""
    return UNKNOWN if value is None else span(value)


def figure(value: float | None, digits: int = 1) -> str:
    """Such as `64.8`, `2 604`; a dash where it is not known, which is never 0."""
    return UNKNOWN if value is None else number(value, digits)


def ms(value: float | None, digits: int = 1) -> str:
    """Seconds as milliseconds."""
    return figure(None if value is None else value * MS, digits)


def share(value: float | None) -> str:
    """A ratio in percent, such as `56 %`."""
    return UNKNOWN if value is None else f"{100 * value:.0f} %"


def ratio(value: float | None) -> str:
    """A ratio as a change, such as `-26.0 %`, which no line breaks apart."""
    return UNKNOWN if value is None else change(value).replace("-", "\N{MINUS SIGN}").replace(" ", "\N{NO-BREAK SPACE}")


def tone(item: Any) -> str:
    """The class that an experiment's state is drawn in."""
    status = str(item.status)
    if status == Status.FINISHED:
        return _TONES.get(str(item.outcome), "quiet")
    return "run" if status in {Status.RUNNING, Status.STOPPING} else "warn" if status == Status.HELD else "wait"


def verdict_tone(verdict: str) -> str:
    """The class that a verdict is drawn in."""
    return _WORDS.get(verdict, "quiet")


def said(text: str) -> str:
    """A name of the code in words."""
    return text.replace("_", " ")


def percent_of(progress: Mapping[str, Any]) -> float | None:
    """How much is done, 0..100; None where it cannot be told."""
    if progress.get("percent") is not None:
        return float(progress["percent"])
    if progress.get("requests"):
        return 100.0 * float(progress.get("done") or 0) / float(progress["requests"])
    return None


def value_text(value: Any) -> str:
    """A value of a spec as the file writes it."""
    if value is None:
        return UNKNOWN
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


FILTERS = {
    "clock": clock,
    "took": took,
    "seconds": seconds,
    "figure": figure,
    "ms": ms,
    "share": share,
    "ratio": ratio,
    "tone": tone,
    "verdict_tone": verdict_tone,
    "said": said,
    "percent_of": percent_of,
    "value": value_text,
}
