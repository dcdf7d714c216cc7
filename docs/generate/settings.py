"""What can be set from outside, from the class of settings and from what the command line reads."""

from __future__ import annotations

from collections.abc import Callable

from docs.generate.markdown import table
from expctl import environment

HEAD = ("variable", "default", "meaning")


def settings() -> str:
    """Every setting of the processes."""
    return table(HEAD, [(f"`{one.variable}`", one.default, one.meaning) for one in environment.settings()])


def of_command_line() -> str:
    """What the command line itself reads."""
    return table(("variable", "meaning"), [(code_list(names), meaning) for names, meaning in environment.OF_COMMAND_LINE.items()])


def code_list(names: str) -> str:
    """Names with commas between them, each as code."""
    return ", ".join(f"`{name}`" for name in names.split(", "))


BLOCKS: dict[str, Callable[[], str]] = {"settings": settings, "command-line-variables": of_command_line}
