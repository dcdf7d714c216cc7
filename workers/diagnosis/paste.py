"""A paste of mixed evidence, cut into its parts: each is known by its header, or else by its looks."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field

MOST_PART_LINES = 200_000

_HEADER = re.compile(r"^(?:# ?)?--- (?P<title>\S.*?)\s*$")
_PROMPT = re.compile(r"^\$ (?P<command>\S.*)$")
_STATUS = re.compile(
    r"^exit(?: status| code)?[:=] ?(?P<status>-?\d{1,5})\s*$|^exit status: (?P<none>none|unknown|\?|\(none\))\s*$", re.IGNORECASE
)
_STREAM = re.compile(r"^(?P<name>stdout|stderr): ?(?P<rest>.*)$")
_PROBE = re.compile(r"^(?:GET|POST|HEAD|PUT) /\S{0,400}(?: \S.{0,400})? -> ")
_TIMED_OUT = re.compile(r"^\(?(?:timed out|timeout|no answer|hung|killed after|killed by timeout|did not return)\b.*$", re.IGNORECASE)
_REMARK = re.compile(r"^# ?(?!HELP |TYPE |UNIT |EOF\b)(?P<text>\S.*)$")
_FENCE = re.compile(r"^\s{0,12}(?:`{3,8}|~{3,8})[\w+-]{0,20}\s*$")
_SITUATION = re.compile(
    r"^(?:-+ ?)?(?:start|result|stream|case|host|situation|server|attempt|run|input|reading|unit|probe|machine) (?P<letter>[A-Z])(?![\w-])"
)


@dataclass
class Part:
    """One piece of evidence. `title` is the header's text, or the command."""

    title: str = ""
    lines: list[str] = field(default_factory=list)
    """Its body; of a command what it printed on stdout."""
    is_command: bool = False
    exit_status: int | None = None
    stderr: list[str] = field(default_factory=list)
    timed_out: bool = False
    has_streams: bool = False
    has_status: bool = False
    """Whether it says how it ended, be it that nobody knows."""
    letter: str | None = None
    """Which of several situations it belongs to."""

    @property
    def command(self) -> str:
        """The command line; empty where the part is none."""
        return self.title if self.is_command else ""

    @property
    def ended(self) -> bool:
        """Whether it tells how a command ended."""
        return self.exit_status is not None or self.timed_out or self.has_streams


@dataclass
class Paste:
    """All parts in order, and the remarks."""

    parts: list[Part] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def situations(self) -> dict[str, Paste]:
        """One paste a letter, where it holds several situations; empty where it is one."""
        letters = list(dict.fromkeys(part.letter for part in self.parts if part.letter))
        if len(letters) < 2:  # noqa: PLR2004 - one letter is only a name
            return {}
        return {letter: Paste([part for part in self.parts if part.letter == letter], list(self.remarks)) for letter in letters}


class Cutter:
    """Cuts line by line."""

    def __init__(self) -> None:
        self.paste = Paste()
        self._part = Part()
        self._into: list[str] = self._part.lines
        self._letter: str | None = None

    def feed(self, lines: Iterable[str]) -> Paste:
        """Take in every line."""
        for line in lines:
            self._take(line)
        self._close()
        return self.paste

    def _take(self, line: str) -> None:
        header = _HEADER.match(line)
        if header and not header["title"].endswith("---"):
            self._open(header["title"], is_command=False)
        elif prompt := _PROMPT.match(line):
            self._open(prompt["command"], is_command=True)
        elif remark := _REMARK.match(line):
            self._remark(remark["text"])
        elif _PROBE.match(line) and self._part.ended:
            # What a server answered is no part of what a command printed before.
            self._open("", is_command=False)
            self._into.append(line)
        elif not self._of_a_command(line) and len(self._into) < MOST_PART_LINES:
            self._into.append(line)

    def _of_a_command(self, line: str) -> bool:
        if status := _STATUS.match(line):
            if self._part.has_status and not self._part.is_command:
                self._open("", is_command=True)
            self._part.exit_status = int(status["status"]) if status["status"] else None
            self._part.has_streams = self._part.has_status = True
            self._into = self._part.lines
            return True
        if stream := _STREAM.match(line):
            self._part.has_streams = True
            self._into = self._part.lines if stream["name"] == "stdout" else self._part.stderr
            rest = stream["rest"].strip()
            if rest and rest != "(empty)":
                self._into.append(rest)
            return True
        if (self._part.is_command or self._part.has_streams) and _TIMED_OUT.match(line):
            self._part.timed_out = True
            return True
        return False

    def _remark(self, text: str) -> None:
        if situation := _SITUATION.match(text):
            self._close()
            self._letter = situation["letter"]
            self._part = Part(letter=self._letter)
            self._into = self._part.lines
        self.paste.remarks.append(text)

    def _open(self, title: str, *, is_command: bool) -> None:
        self._close()
        situation = _SITUATION.match(title)
        self._letter = situation["letter"] if situation else self._letter
        self._part = Part(title=title, is_command=is_command, letter=self._letter)
        self._into = self._part.lines

    def _close(self) -> None:
        part = self._part
        if part.title or part.ended or any(line.strip() for line in part.lines):
            self.paste.parts.append(part)
        self._part = Part(letter=self._letter)
        self._into = self._part.lines


def cut(text: str) -> Paste:
    """The parts of a whole paste."""
    return Cutter().feed(_as_printed(line.removesuffix("\r") if line.count("\r") == 1 else line for line in text.split("\n")))


def _as_printed(lines: Iterable[str]) -> list[str]:
    """The lines without what people put around them: fences of Markdown, the marks of a quotation, a common indent."""
    kept = [line for line in lines if not _FENCE.match(line)]
    filled = [line for line in kept if line.strip()]
    if filled and all(line.startswith(">") for line in filled):
        kept = [line.removeprefix(">").removeprefix(" ") for line in kept]
    elif filled and all(line[0] in " \t" for line in filled):
        kept = textwrap.dedent("\n".join(kept)).split("\n")
    return kept
