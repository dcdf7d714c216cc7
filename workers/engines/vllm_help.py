"""Arguments held against the engine's own `vllm serve --help=all`: what is wrong is found before anything is started."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from workers.engines.renamed import nearest_option
from workers.engines.vllm_options import is_option

_OPTION = re.compile(r"^ {2}(?P<names>-{1,2}[A-Za-z].{0,4000})$")
_NAME = re.compile(r"^-{1,2}[A-Za-z][\w.-]*$")
_CHOICES = re.compile(r"\{([^{}]{1,4000})\}")
_COLUMN = re.compile(r"\S(?P<gap> {2,})(?=\S)")
_LEVEL = re.compile(r"^-O(?:=?\d?|\{.*|\..*)$", re.DOTALL)


@dataclass(frozen=True)
class HelpOption:
    """One option as the help lists it."""

    names: tuple[str, ...]
    """All spellings, the negative and the short ones too."""
    takes_value: bool
    many: bool = False
    choices: tuple[str, ...] = ()
    json: bool = False

    @property
    def name(self) -> str:
        """The long name that people know it by."""
        return next((name for name in self.names if name.startswith("--") and not name.startswith("--no-")), self.names[0])


@dataclass(frozen=True)
class Objection:
    """What this version will refuse."""

    argument: str
    text: str
    nearest: str | None = None
    certain: bool = True
    """False where a version that is not known here may take it."""


def parse_help(text: str) -> dict[str, HelpOption]:
    """Every spelling of every option in a help text. Empty where the text is no help."""
    found: dict[str, HelpOption] = {}
    lines = text.splitlines()
    for index, line in enumerate(lines):
        match = _OPTION.match(line)
        if match:
            below = " ".join(part.strip() for part in lines[index + 1 : index + 12] if part.startswith(" " * 8))
            option = _option(match["names"], below)
            if option is not None:
                found.update(dict.fromkeys(option.names, option))
    return found


def _option(listed: str, below: str) -> HelpOption | None:
    gap = _COLUMN.search(listed)
    spelled = listed[: gap.start("gap")] if gap else listed
    choices = _CHOICES.search(spelled)
    names: list[str] = []
    rest: list[str] = []
    for piece in _CHOICES.sub("CHOICE", spelled).split(", "):
        name, _, value = piece.strip().partition(" ")
        if not _NAME.match(name):
            continue
        names.append(name)
        rest.append(value)
    if not names:
        return None
    value = rest[0]
    return HelpOption(
        names=tuple(names),
        takes_value=bool(value),
        many="[" in value or "..." in value,
        choices=tuple(part.strip() for part in choices[1].split(",")) if choices else (),
        json=value.endswith("_CONFIG") or "valid JSON string" in below,
    )


def object_to(words: Sequence[str], options: Mapping[str, HelpOption]) -> list[Objection]:
    """What a version with these options refuses of the words after `vllm serve`. Nothing, where the options are not known."""
    if not options:
        return []
    return [objection for at in range(len(words)) if is_option(words[at]) for objection in _objections(words, at, options)]


def _objections(words: Sequence[str], at: int, options: Mapping[str, HelpOption]) -> Iterator[Objection]:
    word, equals, value = words[at].partition("=")
    if _LEVEL.match(word):
        return
    head, dot, _ = word.partition(".")
    option = _find(head, options)
    if option is None:
        near = nearest_option(head, options)
        yield Objection(head, f"this version has no {head}" + (f"; instead: {near}" if near else ""), near)
        return
    if dot:
        return
    follows = at + 1 < len(words) and not is_option(words[at + 1])
    if equals and not option.takes_value:
        yield Objection(option.name, f"{option.name} takes no value")
    elif option.takes_value and not equals and not follows and not option.many:
        yield Objection(option.name, f"{option.name} needs a value")
    elif option.takes_value and (equals or follows):
        yield from _of_value(option, value if equals else words[at + 1])


def _find(word: str, options: Mapping[str, HelpOption]) -> HelpOption | None:
    """By its name, with underscores for dashes, or by a beginning that only one option has."""
    name = word if not word.startswith("--") else word.replace("_", "-")
    if name in options:
        return options[name]
    begun = {option.name: option for spelling, option in options.items() if spelling.startswith(name)} if name.startswith("--") else {}
    return next(iter(begun.values())) if len(begun) == 1 else None


def _of_value(option: HelpOption, value: str) -> Iterator[Objection]:
    if option.choices and value not in option.choices:
        near = _nearest(value, option.choices)
        hint = f"; the nearest valid one: {near}" if near else f"; valid: {', '.join(option.choices[:12])}"
        yield Objection(option.name, f"{option.name} does not take {value}{hint}", near)
    elif option.json and value.lstrip().startswith("{") and not _is_json(value):
        # The value itself may hold a secret.
        yield Objection(option.name, f"the value of {option.name} is not JSON")


def _nearest(value: str, choices: Sequence[str]) -> str | None:
    import difflib  # noqa: PLC0415 - only for what is wrong

    close = difflib.get_close_matches(value, list(choices), n=1)
    return close[0] if close else None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
