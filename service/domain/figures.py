"""Times and figures as messages say them."""

from __future__ import annotations

MINUTE_S, HOUR_S = 60, 3600
THOUSAND = 1000
UNKNOWN = "not known"


def span(seconds: float | None) -> str:
    """Such as `42 s`, `55 min`, `6 h 40 min`."""
    if seconds is None:
        return UNKNOWN
    if round(seconds) < MINUTE_S:
        return f"{max(0, round(seconds))} s"
    minutes = round(seconds / MINUTE_S)
    return f"{minutes} min" if minutes < HOUR_S // MINUTE_S else f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")


def number(value: float, digits: int = 1) -> str:
    """Such as `64.8`, `2 604`."""
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= THOUSAND else f"{value:.{digits}f}"


def change(ratio: float) -> str:
    """Such as `+43.7 %`, of candidate over baseline."""
    return f"{(ratio - 1) * 100:+.1f} %"


def counted(count: int, what: str) -> str:
    """Such as `1 load`, `7 loads`."""
    return f"{count} {what}" + ("" if count == 1 else "s")


def named(names: list[str], most: int = 8) -> str:
    """Such as `42 a, 43 b and 3 more`."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
