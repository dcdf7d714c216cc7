"""Terms with what they mean, and paragraphs, as wide as the screen. No library: help should come at once."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping

PIPED = 100
"""Columns where nobody says how many there are."""
GLUE = "\N{NO-BREAK SPACE}"
_LEAST = 24
"""Columns that a meaning needs beside its term; with fewer it stands below."""
_INDENT = 2
_MARKS = re.compile(r"`([^`]*)`")


def screen() -> int:
    """How wide the screen is: COLUMNS, else the terminal's own width."""
    return max(shutil.get_terminal_size((PIPED, 24)).columns, 20)


def paragraph(text: str, width: int) -> str:
    """Running text; code stands without its marks, and what GLUE joins stays together."""
    return textwrap.fill(_plain(text), min(width, PIPED), break_long_words=False, break_on_hyphens=False).replace(GLUE, " ")


def terms(meanings: Mapping[str, str], width: int, longest: int = 0) -> str:
    """A line a term, its meaning behind it, or below it where the screen is too narrow. `longest`: a term of another list beside it."""
    column = _INDENT + max(longest, *map(len, meanings)) + 2
    return "\n".join(line for term, meaning in meanings.items() for line in _term(term, meaning, min(width, PIPED), column))


def _term(term: str, meaning: str, width: int, column: int) -> Iterator[str]:
    beside = width - column >= _LEAST
    at = column if beside else 3 * _INDENT
    wrapped = textwrap.wrap(_plain(meaning), width - at, break_long_words=False, break_on_hyphens=False)
    first, rest = ("".join(wrapped[:1]), wrapped[1:]) if beside else ("", wrapped)
    yield f"{'':{_INDENT}}{term:<{column - _INDENT}}{first}".rstrip()
    yield from (f"{'':{at}}{line}" for line in rest)


def _plain(text: str) -> str:
    return _MARKS.sub(r"\1", text)
