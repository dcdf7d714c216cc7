"""Summary lines of speculation in an engine's log: the fallback where nobody scraped the counters.

One pattern a key, never one for the line: the order of keys has changed between versions. Each line of vLLM V1 covers the time
since the one before it; none of them is a total.
"""

from __future__ import annotations

import math
import re
from typing import Any

from service.domain.speculation import ratio, v0_drafts

_N = r"(\d{1,15}(?:\.\d{1,9})?|nan)"
_MARK = re.compile(r"SpecDecoding metrics: |Speculative metrics: |\baccept len: |draft acceptance(?: rate)? = ")
_LENGTH = re.compile(rf"(?:[Mm]ean acceptance length|mean len|accept len)[:=]? {{0,3}}=? {{0,3}}{_N}")
_PERCENT = re.compile(rf"[Dd]raft acceptance rate: {_N}%")
_FRACTION = re.compile(rf"(?:[Dd]raft acceptance rate|accept rate)[:=] {_N}(?!\d*%)|draft acceptance(?: rate)? = {_N}")
_ACCEPTED = re.compile(rf"(?:Accepted|Number of accepted tokens): {_N}|\( {{0,12}}{_N} accepted")
_DRAFTED = re.compile(rf"(?:Drafted|Number of draft tokens): {_N}|/ {{0,12}}{_N} generated")
_EMITTED = re.compile(rf"Number of emitted tokens: {_N}")
_K = re.compile(rf"Number of speculative tokens: {_N}")
_POSITIONS = re.compile(
    r"[Pp]er-position acceptance rate: ((?:\d\.\d{1,6}|nan)(?:, (?:\d\.\d{1,6}|nan)){0,255})|rate per position = \(([\d., ]{1,2000})\)"
)


def spec_line(message: str) -> dict[str, Any] | None:
    """Figures of one summary line under the names of `Speculation`; None for any other line."""
    if not _MARK.search(message):
        return None
    percent = _number(_PERCENT, message)
    found: dict[str, Any] = {
        "source": "log",
        "accepted_tokens": _count(_ACCEPTED, message),
        "draft_tokens": _count(_DRAFTED, message),
        "mean_acceptance_length": _number(_LENGTH, message),
        "draft_acceptance_rate": round(percent / 100, 6) if percent is not None else _number(_FRACTION, message),
        "per_position_acceptance": _positions(message),
    }
    warnings = _normalise(found, message)
    drafted, rate = found["draft_tokens"], found["draft_acceptance_rate"]
    # SGLang's first versions give the length alone.
    told = rate is not None or (found["mean_acceptance_length"] or 0) >= 1
    found["status"] = "on" if drafted or (drafted is None and told) else "never_drafted" if drafted == 0 else "unknown"
    return {**found, "warnings": warnings}


def _normalise(found: dict[str, Any], message: str) -> list[str]:
    """The length with the token that the target adds, however this version wrote it; and what the reader should know."""
    emitted, k, drafted = _count(_EMITTED, message), _count(_K, message), found["draft_tokens"]
    if emitted is not None:
        found["mean_acceptance_length"] = ratio(emitted, v0_drafts(drafted, k))
        return ["v0_counters", "cumulative"]
    length, positions = found["mean_acceptance_length"], found["per_position_acceptance"]
    total = math.fsum(positions) if positions else None
    if length is not None and total is not None and abs(length - total) < abs(length - 1 - total):
        # 0.8.5 alone left it out.
        found["mean_acceptance_length"] = round(length + 1, 6)
        return ["interval", "length_was_without_bonus"]
    return ["interval"]


def _positions(message: str) -> list[float] | None:
    match = _POSITIONS.search(message)
    if match is None:
        return None
    values = [part.strip() for part in (match[1] or match[2]).split(",")]
    try:
        numbers = [float(value) for value in values if value]
    except ValueError:
        return None
    return None if any(math.isnan(number) for number in numbers) else numbers


def _number(pattern: re.Pattern[str], message: str) -> float | None:
    match = pattern.search(message)
    text = next(filter(None, match.groups()), None) if match else None
    value = float(text) if text is not None else math.nan
    return None if math.isnan(value) else value


def _count(pattern: re.Pattern[str], message: str) -> int | None:
    value = _number(pattern, message)
    return None if value is None else round(value)
