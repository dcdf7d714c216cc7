"""Durations as people write them."""

from __future__ import annotations

import re

PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str) -> float:
    """Seconds from `90s`, `30m`, `1h30m`, `7d`; ValueError says how it is written."""
    plain = text.strip().replace(" ", "")
    if not plain or PART.sub("", plain):
        raise ValueError("a duration is written like 30m, 90s or 1h30m")
    return sum(float(number) * UNIT_S[unit] for number, unit in PART.findall(plain))


def parse_duration(value: object) -> object:
    """The same for a value that may be a number already, or something else for the model to refuse."""
    return seconds(value) if isinstance(value, str) else value
