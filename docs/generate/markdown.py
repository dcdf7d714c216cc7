"""Tables in Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of GitHub's Markdown; bars in a cell are escaped, its lines joined."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines).replace("| --- ", "|---").replace("|--- |", "|---|") + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


WIDTH = 145

NAMES = ("expctl", "systemd", "sudo")
"""Programs, which are written small wherever they stand."""


def sentence(text: str) -> str:
    """The words with a capital letter and a full stop."""
    plain = " ".join(text.split())
    first = plain if plain.startswith(NAMES) else plain[:1].upper() + plain[1:]
    return first + ("" if not plain or plain[-1] in ".?!" else ".")


def paragraph(text: str) -> str:
    """Lines of a width that diffs can be read at."""
    return textwrap.fill(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False)
