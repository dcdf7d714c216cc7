"""What documents hold: pages, links, and command lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.md")])
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`((?:[^`\n]|\n(?!\n))+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_OPERATORS = set("();<>|&")
_BEFORE = {"docker", "compose", "exec", "api", "sudo"}


@dataclass(frozen=True)
class CommandLine:
    """What stands behind `expctl`, word by word."""

    page: str
    words: tuple[str, ...]
    whole: bool
    """It stands alone, to be copied, and is no mention of a verb in a sentence."""

    def __str__(self) -> str:
        return f"{self.page}: expctl {' '.join(self.words)}"


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def command_lines(path: Path) -> Iterator[CommandLine]:
    """Every one in a page, or in the remarks of an example."""
    text = path.read_text()
    if path.suffix == ".yaml":
        remarks = (line.lstrip("#").strip() for line in text.splitlines() if line.startswith("#"))
        yield from (
            one for line in remarks if line.startswith("expctl ") for one in _commands(path, re.split(r" {2,}", line)[0], whole=True)
        )
        return
    for _, kind, body in _FENCE.findall(text):
        for line in body.splitlines() if kind in {"", "sh"} else ():
            yield from _commands(path, line.strip().removeprefix("$ "), whole=True)
    for code in inline_code(text):
        yield from _commands(path, code, whole=False)


def inline_code(text: str) -> list[str]:
    """Code in sentences and tables."""
    return [" ".join(code.split()).replace("\\|", "|") for code in _INLINE.findall(_FENCE.sub("", text))]


def _commands(path: Path, line: str, *, whole: bool) -> Iterator[CommandLine]:
    if "expctl" not in line:
        return
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:
        return  # a sentence with an apostrophe, or an output
    for command in _simple(words):
        at = next((index for index, word in enumerate(command) if word == "expctl" or word.endswith("/expctl")), None)
        if at is not None and all(word in _BEFORE or "=" in word for word in command[:at]):
            yield CommandLine(name(path), tuple(command[at + 1 :]), whole)


def _simple(words: list[str]) -> Iterator[list[str]]:
    command: list[str] = []
    for word in [*words, ";"]:
        if set(word) <= _OPERATORS:
            yield command
            command = []
        else:
            command.append(word)


def links(path: Path) -> list[str]:
    """The links of a page that lead to no other server."""
    return [link for link in _LINK.findall(_FENCE.sub("", path.read_text())) if "://" not in link and not link.startswith("mailto:")]


def anchors(path: Path) -> set[str]:
    """What a page's headings are called in links."""
    headings = _HEADING.findall(_FENCE.sub("", path.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
