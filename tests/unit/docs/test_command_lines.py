"""Every command line that documents show: its verb and its options exist, and it has as many arguments as the verb takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.generate.commands import Command, commands
from expctl import globals as command_globals
from expctl.globals import Options, take_globals
from expctl.main import VERBS
from tests.unit.docs.reading import EXAMPLES, PAGES, CommandLine, command_lines
from tests.unit.docs.reading import name as page_name

KNOWN = {verb for group in VERBS.values() for verb in group}
HELP = {"--help", "-h", "help"}
MADE = "cli.md"
"""Made from the verbs themselves, in the form of usage lines."""


@pytest.fixture(autouse=True)
def _fresh_options(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its fields and not the object: whoever imports it meanwhile keeps it.
    for name, value in vars(Options()).items():
        monkeypatch.setattr(command_globals.options, name, value)


@pytest.mark.parametrize("page", [page for page in (*PAGES, *EXAMPLES) if page.name != MADE], ids=page_name)
def test_what_is_shown_can_be_typed(page: Path) -> None:
    assert [f"{line}: {found}" for line in command_lines(page) if (found := objection(line))] == []


def test_documents_show_command_lines() -> None:
    shown = {words[0] for page in PAGES if page.name != MADE for line in command_lines(page) if (words := line.words)}
    assert {"submit", "compare", "host", "bench", "diagnose", "up"} <= shown


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("submit x.yaml --set a=b --follow", None),
        ("--json host add gpu0 --park a.service", None),
        ("bench --base-url http://h/v1 --concurrency 1 8", None),
        ("queu", "there is no verb queu"),
        ("host ad gpu0", "host has no ad"),
        ("submit x.yaml --sets a=b", "there is no option --sets"),
        ("submit x.yaml --set", "--set needs a value"),
        ("submit", "something is missing"),
        ("submit a.yaml b.yaml", "b.yaml is too much"),
        ("notify add infra --kind slack", "--url must be given"),
    ],
)
def test_a_wrong_line_is_seen(line: str, wrong: str | None) -> None:
    assert objection(CommandLine("a page", tuple(line.split()), whole=True)) == wrong


def objection(line: CommandLine) -> str | None:
    """What is wrong with a command line; None: nothing."""
    words = take_globals(list(line.words))
    if not words or words[0] in HELP or words[0].isupper():
        return None
    verb, *rest = words
    if verb not in KNOWN:
        return f"there is no verb {verb}"
    found = {one.words: one for one in commands(verb)}
    if (verb,) in found:
        return _wrong_with(found[(verb,)], rest, whole=line.whole)
    if not rest or rest[0].startswith("-"):
        return None  # the verb alone is spoken of
    several = rest[0].split("/")
    unknown = [one for one in several if (verb, one) not in found]
    return f"{verb} has no {unknown[0]}" if unknown else _wrong_with(found[(verb, several[0])], rest[1:], whole=line.whole)


def _wrong_with(command: Command, rest: list[str], *, whole: bool) -> str | None:
    plain, given = [], set()
    words = iter(word for word in rest if word not in HELP)
    for word in words:
        option, equals, _ = word.partition("=")
        if not word.startswith("-") or word == "-":
            plain += [word] if word != "..." else []
        elif option not in command.options:
            return f"there is no option {option}"
        elif command.options[option].takes_value and not equals and next(words, None) is None and whole:
            return f"{option} needs a value"
        else:
            given.add(command.options[option])
    most = None if any(one.several for one in command.arguments) else len(command.arguments)
    if most is not None and len(plain) > most:
        return f"{plain[most]} is too much"
    return _missing(command, len(plain), given) if whole and not HELP & set(rest) else None


def _missing(command: Command, arguments: int, given: set[object]) -> str | None:
    if arguments < sum(one.required for one in command.arguments):
        return "something is missing"
    needed = [one for one in command.parameters if one.spellings and one.required and one not in given]
    return f"{needed[0].spellings[0]} must be given" if needed else None
