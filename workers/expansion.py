"""What becomes of `%` and `$` in half-decoded words, so that the argv that /proc will show is known beforehand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from workers.execline import WHITESPACE

_PERCENT = re.compile(r"%(.)", re.DOTALL)
_BRACED = re.compile(r"\$(?:(?P<dollar>\$)|\{(?P<name>[^}:]*)\}|\{[^}:]*(?::|\Z))")
"""`$$`, `${NAME}`, or what only begins like one (a brace that is never closed, a colon): that stays as it is."""

SYSTEM_SPECIFIERS: dict[str, str] = {
    "u": "root", "U": "0", "g": "root", "G": "0", "h": "/root",
    "t": "/run", "S": "/var/lib", "C": "/var/cache", "L": "/var/log", "E": "/etc", "T": "/tmp", "V": "/var/tmp",  # noqa: S108
}  # fmt: skip
"""What the system's own systemd puts in, on every host: %u is who runs systemd, not who runs the unit."""

KNOWN_SPECIFIERS = frozenset("aAbBcCdDEfgGhHiIjJlLmMnNopPqrRsStTuUvVwWyY")
"""Letters that some version up to 257 knows. With any other letter or digit after a `%`, systemd refuses the unit."""

PROVIDED = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "MAINPID", "MANAGERPID", "INVOCATION_ID", "SYSTEMD_EXEC_PID",
        "JOURNAL_STREAM", "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES",
        "CREDENTIALS_DIRECTORY", "RUNTIME_DIRECTORY", "STATE_DIRECTORY", "CACHE_DIRECTORY", "LOGS_DIRECTORY",
        "CONFIGURATION_DIRECTORY", "MEMORY_PRESSURE_WATCH", "MEMORY_PRESSURE_WRITE", "FDSTORE",
    }
)  # fmt: skip
"""Variables that systemd itself may set."""

_OF_ONE_START = frozenset({"INVOCATION_ID", "SYSTEMD_EXEC_PID", "JOURNAL_STREAM", "MAINPID", "LISTEN_PID", "WATCHDOG_PID"})
"""Another value with each start."""


class Unresolved(ValueError):
    """What a word becomes is not known here; `names` are the specifiers or variables that are to blame."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(dict.fromkeys(names))
        super().__init__(", ".join(self.names))


def name_specifiers(unit: str) -> dict[str, str]:
    """The specifiers that depend on the unit's name, which another unit would fill in differently."""
    stem = unit.rpartition(".")[0] or unit
    prefix, at, instance = stem.partition("@")
    last = prefix.rpartition("-")[2]
    path = instance if at else prefix
    return {
        "n": unit,
        "N": stem,
        "p": prefix,
        "P": unescape_name(prefix),
        "i": instance,
        "I": unescape_name(instance),
        "j": last,
        "J": unescape_name(last),
        "f": "/" if path == "-" else "/" + unescape_name(path),
    }


def unescape_name(text: str) -> str:
    """A part of a unit's name with systemd's escaping undone: `-` is a slash, and a byte may be written as backslash x2d."""
    parts = re.split(r"\\x([0-9a-fA-F]{2})", text)
    data = b"".join(
        bytes([int(part, 16)]) if index % 2 else part.replace("-", "/").encode("utf-8", "surrogateescape")
        for index, part in enumerate(parts)
    )
    return data.decode("utf-8", "surrogateescape")


def live_specifiers(words: Iterable[str]) -> tuple[str, ...]:
    """Letters of the specifiers in the words."""
    return tuple(dict.fromkeys(match[1] for word in words for match in _PERCENT.finditer(word) if _is_specifier(match[1])))


def pin_specifiers(words: Iterable[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """The words with those specifiers put in for good; every other one stays alive."""

    def pinned(match: re.Match[str]) -> str:
        value = values.get(match[1])
        return match[0] if value is None else value.replace("%", "%%")

    return tuple(_PERCENT.sub(pinned, word) for word in words)


def expand_specifiers(words: Iterable[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """The words as they are once systemd has read the unit. Raises Unresolved for a specifier without a value here."""
    words = tuple(words)
    unknown = [f"%{letter}" for letter in live_specifiers(words) if letter not in values]
    if unknown:
        raise Unresolved(unknown)
    return tuple(_PERCENT.sub(lambda match: "%" if match[1] == "%" else values.get(match[1], match[0]), word) for word in words)


def expand_variables(words: Iterable[str], variables: Mapping[str, str]) -> tuple[str, ...]:
    """The words as they are once the program starts: argv.

    A word that begins with `$`, and not with `$$` or `${`, is a reference as a whole and becomes as many words as its value
    has; `${NAME}` anywhere else is put in as it is; what is not set is empty; `$$` is a dollar sign.
    """
    made: list[str] = []
    for word in words:
        if is_reference(word):
            made += _split_value(variables.get(word[1:], ""))
        else:
            made.append(_BRACED.sub(lambda match: _put_in(match, variables), word))
    return tuple(made)


def _put_in(match: re.Match[str], variables: Mapping[str, str]) -> str:
    if match["name"] is not None:
        return variables.get(match["name"], "")
    return "$" if match["dollar"] else match[0]


def expand(words: Iterable[str], specifiers: Mapping[str, str], variables: Mapping[str, str]) -> tuple[str, ...]:
    """The argv that /proc shows. Raises Unresolved where that depends on something that is not known here."""
    resolved = expand_specifiers(words, specifiers)
    names = references(resolved)
    unknown = [f"${name}" for name in names if name in _OF_ONE_START or (name in PROVIDED and name not in variables)]
    if unknown:
        raise Unresolved(unknown)
    return expand_variables(resolved, variables)


def references(words: Iterable[str]) -> tuple[str, ...]:
    """Names of the variables that the words refer to, in order."""
    found: list[str] = []
    for word in words:
        found += [word[1:]] if is_reference(word) else [match["name"] for match in _BRACED.finditer(word) if match["name"] is not None]
    return tuple(dict.fromkeys(found))


def is_reference(word: str) -> bool:
    """Whether systemd takes the whole word for the name of a variable, whatever follows the `$`."""
    return word.startswith("$") and not word.startswith(("${", "$$"))


def _is_specifier(char: str) -> bool:
    return char.isascii() and char.isalnum()


def _split_value(value: str) -> list[str]:
    """A variable's value as words: quotes group, a backslash takes the next character as it is, an open quote ends at the end."""
    words: list[str] = []
    word: str | None = None
    quote = ""
    chars = iter(value)
    for char in chars:
        if char == "\\":
            word = (word or "") + next(chars, "")
        elif char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote, word = char, word or ""
        elif not quote and char in WHITESPACE:
            words += [] if word is None else [word]
            word = None
        else:
            word = (word or "") + char
    return words if word is None else [*words, word]
