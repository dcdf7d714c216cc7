"""Data goes to stdout, talk to stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from expctl.globals import options
from service.domain.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def say(text: str) -> None:
    """Talk: progress and hints. Silent under --quiet."""
    if not options.quiet:
        print(text, file=sys.stderr, flush=True)


def emit(value: Any) -> None:
    """Data as JSON, with only the fields asked for."""
    print(json.dumps(_picked(value), ensure_ascii=False, indent=2), flush=True)


def emit_changes(ids: Sequence[int], change: Callable[[int], dict[str, Any]]) -> None:
    """Change experiments one by one. As JSON an object for one, a list for several; in words, where each is now.

    Where one is refused, those before it are told of all the same.
    """
    changed: list[dict[str, Any]] = []
    try:
        for one in ids:
            item = change(one)
            changed.append(item)
            if not options.json:
                say(f"{item['id']}  {item['name']}: {item['status_text']}" + (f" ({item['where_text']})" if item["where_text"] else ""))
    finally:
        if options.json and changed:
            emit(changed[0] if len(ids) == 1 else changed)


def emit_list(items: Sequence[dict[str, Any]], key: str, nothing: str, draw: Callable[[], None]) -> None:
    """A list: as JSON; under --quiet the `key` of each; else drawn, or in words that there is `nothing`."""
    if options.json:
        emit(items)
    elif options.quiet:
        for item in items:
            print(item[key])
    elif not items:
        say(nothing)
    else:
        draw()


def emit_line(value: Any) -> None:
    """One JSON object a line, for views that go on."""
    print(json.dumps(_picked(value), ensure_ascii=False), flush=True)


def _picked(value: Any) -> Any:
    if not options.fields:
        return value
    if isinstance(value, list):
        return [_picked(item) for item in value]
    unknown = [field for field in options.fields if field not in value]
    if unknown:
        raise UsageError(f"there is no field {unknown[0]}", f"fields: {', '.join(value)}", "give some of these to --fields")
    return {field: value[field] for field in options.fields}


def draw(drawn: RenderableType | Callable[[int], RenderableType], *, lists: bool = False) -> None:
    """Draw something, or what is made for the width there is. In a pipe lines have no blanks at their end."""
    terminal = console(lists=lists)
    made = drawn(terminal.width) if callable(drawn) else drawn
    if terminal.is_terminal:
        terminal.print(made)
        return
    with terminal.capture() as shown:
        terminal.print(made)
    print("\n".join(line.rstrip() for line in shown.get().splitlines()), flush=True)


UNFOLDED = 1000
"""Columns of a list that nobody looks at in a terminal: a row is a line, so that other programs can read it."""
PIPED = 120


def console(*, stderr: bool = False, lists: bool = False) -> Console:
    """A terminal, or a plain stream of text: COLUMNS wide where that is set, else 120 columns, and for `lists` as wide as they are."""
    from rich.console import Console  # noqa: PLC0415 - only verbs that draw pay for it

    stream = sys.stderr if stderr else sys.stdout
    told = os.environ.get("COLUMNS", "")
    # rich takes COLUMNS by itself, and a terminal's own width.
    width = None if stream.isatty() or told.isdecimal() else UNFOLDED if lists else PIPED
    # No colour means no escape at all: rich's own switch would leave bold and dim.
    system: Literal["auto", "standard"] | None = None if options.color is False else "standard" if options.color else "auto"
    forced = True if options.color else None
    return Console(file=stream, color_system=system, force_terminal=forced, highlight=False, width=width, soft_wrap=False)
