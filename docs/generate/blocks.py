"""Blocks of a page that are made from the code, between two comments that a reader of the page does not see.

<!-- begin NAME: made by `python -m docs.generate`, not by hand -->
...
<!-- end NAME -->
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from docs.generate import commands, experimentfile, reasons, settings, shapes, topics

PAGES = Path(__file__).parents[1]

Blocks = Mapping[str, Callable[[], str]]

BLOCKS: Blocks = {
    **experimentfile.BLOCKS,
    **reasons.BLOCKS,
    **settings.BLOCKS,
    **commands.BLOCKS,
    **shapes.BLOCKS,
    **topics.BLOCKS,
}

_BLOCK = re.compile(
    r"(?P<begin>^<!-- begin (?P<name>[a-z-]+):[^\n]*-->\n)(?P<body>.*?)(?P<end>^<!-- end (?P=name) -->$)", re.MULTILINE | re.DOTALL
)
_BEGIN = re.compile(r"^<!-- begin ([a-z-]+):", re.MULTILINE)


class BlockError(ValueError):
    """A page asks for a block that there is none of, or leaves one open."""


def pages() -> list[Path]:
    """Every page that may hold blocks."""
    return sorted(PAGES.glob("*.md"))


def names(text: str) -> list[str]:
    """The blocks of a page, in its order."""
    return _BEGIN.findall(text)


def filled(text: str, blocks: Blocks = BLOCKS) -> str:
    """The page with every block made anew."""
    whole = [found["name"] for found in _BLOCK.finditer(text)]
    if whole != names(text):
        raise BlockError(f"a block has no end: {_odd(names(text), whole)}")
    unknown = [name for name in whole if name not in blocks]
    if unknown:
        raise BlockError(f"there is no block {unknown[0]}; known: {', '.join(blocks)}")
    return _BLOCK.sub(lambda found: f"{found['begin']}{blocks[found['name']]().rstrip()}\n{found['end']}", text)


def _odd(begun: Sequence[str], whole: Sequence[str]) -> str:
    return ", ".join(name for name in begun if name not in whole) or ", ".join(begun)


def outdated(paths: Iterable[Path]) -> list[Path]:
    """The pages that say something else than the code."""
    return [path for path in paths if filled(text := path.read_text()) != text]
