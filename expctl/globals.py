"""Options that every verb takes, accepted before and after it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from service.domain.errors import UsageError

GLOBAL_OPTIONS = {
    "--server URL": "the service; default `EXPCTL_SERVER`, else http://127.0.0.1:8700",
    "--json": "data as JSON, in the shapes of the API",
    "--fields a,b": "the same with these fields alone",
    "-q, --quiet": "ids and data only, no talk",
    "--no-color": "plain text without any escape; also by `NO_COLOR` and `TERM=dumb`",
    "--version": "the version",
}
"""As they are written -> what they do."""
LIST_OPTIONS = frozenset({"--concurrency"})
"""Options that take `--concurrency 1 8` as well as `--concurrency 1,8`."""


@dataclass
class Options:
    """As given on this command line."""

    server: str | None = None
    json: bool = False
    fields: tuple[str, ...] = ()
    quiet: bool = False
    color: bool | None = None
    version: bool = False


options = Options()


def take_globals(argv: list[str]) -> list[str]:
    """Read the global options out of a command line, wherever they stand, and give the rest."""
    _refuse_odd_bytes(argv)
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--":
            rest.extend([word, *words])
        elif word in {"--json", "--quiet", "-q", "--no-color", "--version"}:
            _flag(word)
        elif word.split("=", 1)[0] in {"--server", "--fields"}:
            name, equals, value = word.partition("=")
            value = value if equals else next(words, "")
            if not value.strip(",") or (value.startswith("-") and not equals):
                raise UsageError(f"{name} needs a value", "", "see `expctl --help`")
            _valued(name, value)
        else:
            rest.append(word)
    _colour(os.environ.get)
    return join_lists(rest)


def _colour(told: Callable[[str], str | None]) -> None:
    """What the environment says of it, unless the command line has."""
    if options.color is None and (told("NO_COLOR") or told("TERM") == "dumb"):
        options.color = False
    if options.color is None and any(told(name) not in {None, "", "0"} for name in ("CLICOLOR_FORCE", "FORCE_COLOR")):
        options.color = True


def _refuse_odd_bytes(argv: list[str]) -> None:
    """Bytes that are no UTF-8 could be put into no request, no JSON and no message."""
    for word in argv:
        if any("\ud800" <= sign <= "\udfff" for sign in word):
            raise UsageError(f"{word!r} is not UTF-8", "", "write it in UTF-8, and rename files whose names are not")


def _flag(word: str) -> None:
    if word == "--json":
        options.json = True
    elif word in {"--quiet", "-q"}:
        options.quiet = True
    elif word == "--no-color":
        options.color = False
    else:
        options.version = True


def _valued(name: str, value: str) -> None:
    if name == "--server":
        options.server = value
    else:
        options.fields = tuple(part for part in value.split(",") if part)
        options.json = True


def join_lists(words: list[str]) -> list[str]:
    """`--concurrency 1 8` becomes `--concurrency 1,8`."""
    joined: list[str] = []
    index = 0
    while index < len(words):
        joined.append(words[index])
        if words[index] in LIST_OPTIONS:
            values = []
            while index + 1 < len(words) and words[index + 1].replace(",", "").isdigit():
                index += 1
                values.append(words[index].strip(","))
            if values:
                joined.append(",".join(values))
        index += 1
    return joined
