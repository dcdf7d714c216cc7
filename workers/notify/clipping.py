"""Texts made to fit: without what a receiver would take for an order of its own, and never longer than it takes."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

ELLIPSIS = "…"
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_BREAKER = "\u2060"
"""WORD JOINER: nothing to see, and `@channel` is one no more."""
_ODD = frozenset({"Cc", "Cs", "Co", "Cn"})
_TURNERS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")
"""They would show a name backwards."""


def plain(text: str) -> str:
    """A text without control signs, halves of signs and signs that turn the direction; line ends and tabs stay."""
    kept = (sign if sign in "\n\t" or (unicodedata.category(sign) not in _ODD and sign not in _TURNERS) else " " for sign in text)
    return "".join(kept)


def units(text: str) -> int:
    """Length as programs count that keep texts in UTF-16: the larger way to count, so a safe one."""
    return len(text) + sum(sign > "\uffff" for sign in text)


def clip(text: str, limit: int) -> str:
    """The beginning of a text, at most `limit` units long, with a sign where something is missing."""
    if units(text) <= limit:
        return text
    return _fitting(text, limit)


def clip_tail(text: str, limit: int) -> str:
    """The end of a text: what a log said last is what matters."""
    return clip(text[::-1], limit)[::-1]


def mrkdwn(text: str, limit: int) -> str:
    """A text for Slack: escaped, unable to ping anybody or to open a code block, at most `limit` units long with its escapes.

    No escape is cut in two.
    """
    pieces = [_ENTITIES.get(sign, f"@{_BREAKER}" if sign == "@" else sign) for sign in plain(text).replace("```", "'" * 3)]
    whole = "".join(pieces)
    return whole if units(whole) <= limit else _fitting(pieces, limit)


def _fitting(pieces: Iterable[str], limit: int) -> str:
    kept: list[str] = []
    left = limit - units(ELLIPSIS)
    for piece in pieces:
        left -= units(piece)
        if left < 0:
            break
        kept.append(piece)
    return "".join(kept) + ELLIPSIS if limit > 0 else ""
