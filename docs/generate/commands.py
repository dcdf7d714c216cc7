"""Every verb with its arguments and options, from the functions that the command line calls."""

from __future__ import annotations

import importlib
import inspect
import keyword
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from typer.models import ArgumentInfo, OptionInfo

from docs.generate.markdown import sentence, table
from expctl.main import VERBS


@dataclass(frozen=True)
class Parameter:
    """An argument, or an option where it has spellings."""

    name: str
    """As usage shows it."""
    spellings: tuple[str, ...]
    takes_value: bool
    several: bool
    required: bool
    about: str

    @property
    def shown(self) -> str:
        """As it is written on a command line."""
        if not self.spellings:
            return f"{self.name}{'...' if self.several else ''}"
        return f"{'/'.join(self.spellings)}{f' {self.name}' if self.takes_value else ''}"


@dataclass(frozen=True)
class Command:
    """A verb, or one word of a verb that has several."""

    words: tuple[str, ...]
    about: str
    parameters: tuple[Parameter, ...]

    @property
    def arguments(self) -> tuple[Parameter, ...]:
        """In their order."""
        return tuple(one for one in self.parameters if not one.spellings)

    @property
    def options(self) -> Mapping[str, Parameter]:
        """By each of their spellings."""
        return {spelling: one for one in self.parameters for spelling in one.spellings}

    @property
    def usage(self) -> str:
        """The verb with its arguments and the options that must be given."""
        needed = [one.shown for one in self.parameters if one.spellings and one.required]
        arguments = [one.shown if one.required else f"[{one.shown}]" for one in self.arguments]
        rest = any(one.spellings and not one.required for one in self.parameters)
        return " ".join(["expctl", *self.words, *arguments, *needed, *(["[OPTIONS]"] if rest else [])])


def commands(verb: str) -> list[Command]:
    """What a verb can be called with."""
    app = _module(verb).app
    registered = app.registered_commands
    alone = len(registered) == 1 and app.registered_callback is None
    return [_command((verb,) if alone else (verb, _word(one)), one.callback) for one in registered]


def _module(verb: str) -> Any:
    return importlib.import_module(f"expctl.commands.{verb}{'_' if keyword.iskeyword(verb) else ''}")


def _word(registered: Any) -> str:
    return str(registered.name or registered.callback.__name__.replace("_", "-"))


def _command(words: tuple[str, ...], function: Callable[..., Any]) -> Command:
    hints = typing.get_type_hints(function, include_extras=True)
    made = (_parameter(name, hints[name], one.default) for name, one in inspect.signature(function).parameters.items())
    return Command(words, (inspect.getdoc(function) or "").split("\n\n", maxsplit=1)[0], tuple(one for one in made if one is not None))


def _parameter(name: str, hint: Any, default: Any) -> Parameter | None:
    kind, *notes = typing.get_args(hint) if typing.get_origin(hint) is typing.Annotated else (hint,)
    info = next((one for one in notes if isinstance(one, ArgumentInfo | OptionInfo)), None)
    if info is None:
        return None  # what the library fills in, such as its context
    inner = _inner(kind)
    several = typing.get_origin(inner) is list
    plain = typing.get_args(inner)[0] if several else inner
    is_option = isinstance(info, OptionInfo)
    shown = str(info.metavar or _value(name, plain, is_option=is_option)).strip("[]")
    spellings = _spellings(name, plain, info) if isinstance(info, OptionInfo) else ()
    return Parameter(shown, spellings, plain is not bool, several, default is inspect.Parameter.empty, str(info.help or ""))


def _inner(kind: Any) -> Any:
    given = [one for one in typing.get_args(kind) if one is not type(None)]
    return given[0] if type(None) in typing.get_args(kind) and len(given) == 1 else kind


def _spellings(name: str, kind: Any, info: OptionInfo) -> tuple[str, ...]:
    # Within Annotated, the first spelling stands where the default would.
    given = [one for one in (info.default, *(info.param_decls or ())) if isinstance(one, str) and one.startswith("-")]
    if given:
        return tuple(spelling for one in given for spelling in one.split("/"))
    plain = name.replace("_", "-")
    return (f"--{plain}", f"--no-{plain}") if kind is bool else (f"--{plain}",)


def _value(name: str, kind: Any, *, is_option: bool) -> str:
    return {int: "N", float: "N"}.get(kind, "TEXT") if is_option else name.upper()


def verbs() -> str:
    """Every verb in the order of the help, each with its options."""
    return "\n".join(f"## {group}\n\n" + "\n".join(_verb(verb) for verb in of_group) for group, of_group in VERBS.items())


def _verb(verb: str) -> str:
    found = commands(verb)
    about = sentence(next(of_group[verb] for of_group in VERBS.values() if verb in of_group))
    several = f"{about}\n\n" if len(found) > 1 else ""
    return f"### {verb}\n\n{several}" + "\n".join(_call(one) for one in found)


def _call(command: Command) -> str:
    rows = list(_rows(command))
    return f"`{command.usage}`\n\n{sentence(command.about)}\n" + (f"\n{table(('', 'what'), rows)}" if rows else "")


def _rows(command: Command) -> Iterator[tuple[str, str]]:
    for one in command.parameters:
        if one.about:
            yield f"`{one.shown}`", one.about


BLOCKS: dict[str, Callable[[], str]] = {"verbs": verbs}
