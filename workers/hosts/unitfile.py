"""systemd's unit files as settings: a fragment and its drop-ins, read as systemd reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from workers.execline import WHITESPACE, BadLine, is_character, split_words
from workers.expansion import Unresolved, expand_specifiers

_LINE_END = re.compile(r"(?:\r\n|\n\r|\n|\r)\0?|\0")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Setting:
    """One assignment, where it stands."""

    section: str
    key: str
    value: str
    path: str
    line: int
    """Where it begins; with continuation lines it ends further down."""


@dataclass(frozen=True)
class UnitFile:
    """Every assignment of a unit, in the order in which they apply."""

    settings: tuple[Setting, ...]
    ignored: tuple[str, ...] = ()
    """Lines that systemd passes over, each with where it stands and why."""

    def last(self, key: str, section: str = "Service") -> str:
        """The value that counts of a setting that has one; empty where it is not set, or was set back."""
        found = [setting.value for setting in self.settings if setting.key == key and setting.section == section]
        return found[-1] if found else ""

    def every(self, key: str, section: str = "Service") -> tuple[Setting, ...]:
        """The assignments that count of a setting that is a list: those since the last empty one, which takes all back."""
        found: list[Setting] = []
        for setting in self.settings:
            if setting.key == key and setting.section == section:
                found = [*found, setting] if setting.value else []
        return tuple(found)

    def environment(self, specifiers: dict[str, str] | None = None) -> dict[str, str]:
        """What Environment= sets. A value whose specifiers are not known here is left out: it is none that could be told."""
        made: dict[str, str] = {}
        for setting in self.every("Environment"):
            try:
                words = split_words(setting.value)
            except BadLine:
                continue
            for word in words:
                name, equals, value = word.text.partition("=")
                if not equals or not _NAME.fullmatch(name):
                    continue
                try:
                    [made[name]] = expand_specifiers([value], specifiers or {})
                except Unresolved:
                    made.pop(name, None)
        return made

    def environment_names(self) -> frozenset[str]:
        """Names that Environment= and PassEnvironment= set, whatever their values."""
        names: set[str] = set()
        for setting in (*self.every("Environment"), *self.every("PassEnvironment")):
            try:
                names |= {word.text.partition("=")[0] for word in split_words(setting.value)}
            except BadLine:
                continue
        return frozenset(names)


def read_unit(files: Iterable[tuple[str, str]]) -> UnitFile:
    """The settings of a unit's file and its drop-ins, given as (path, text) in the order in which they apply."""
    settings: list[Setting] = []
    ignored: list[str] = []
    for path, text in files:
        section = ""
        for number, line in logical_lines(text):
            where = f"{path}:{number}"
            if any(not is_character(ord(char)) for char in line):
                ignored.append(f"{where}: not UTF-8")
            elif line.startswith("["):
                if not line.endswith("]"):
                    raise BadLine(f"{where}: {line[:80]} is no section header, so that systemd refuses the whole file")
                section = line[1:-1]
            elif not section:
                ignored.append(f"{where}: it stands before the first section")
            elif "=" not in line:
                ignored.append(f"{where}: {line[:80]} has no `=`")
            else:
                key, _, value = line.partition("=")
                settings.append(Setting(section, key.strip(WHITESPACE), value.strip(WHITESPACE), path, number))
    return UnitFile(tuple(settings), tuple(ignored))


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without blanks around them, continuations joined; comments and empty lines left out. With the number of the first.

    A backslash at the end of a line joins the next one, whatever that is; comments in between are passed over.
    """
    pending: str | None = None
    begun = 0
    for number, line in enumerate(_LINE_END.split(text.removeprefix("\ufeff")), 1):
        if line.lstrip(WHITESPACE).startswith(("#", ";")):
            continue
        if pending is None:
            begun = number
        joined = (pending or "") + line
        pending = _continued(joined)
        if pending is None and joined.strip(WHITESPACE):
            yield begun, joined.strip(WHITESPACE)
    if pending is not None and pending.strip(WHITESPACE):
        yield begun, pending.strip(WHITESPACE)


def _continued(line: str) -> str | None:
    """The line with a blank for the backslash that continues it; None where it is whole. A doubled backslash is none."""
    backslashes = len(line) - len(line.rstrip("\\"))
    return line[:-1] + " " if backslashes % 2 else None
