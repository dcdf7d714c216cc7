"""expctl move: another place in the queue."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from expctl.client import Client
from expctl.globals import options
from expctl.output import emit_changes
from service.domain.errors import UsageError

app = typer.Typer(add_completion=False)


@app.command()
def move(
    experiment: Annotated[int, typer.Argument(metavar="ID", help="a waiting experiment")],
    first: Annotated[bool, typer.Option("--first", help="before all others of its host")] = False,
    last: Annotated[bool, typer.Option("--last", help="after all others of its host")] = False,
    before: Annotated[int | None, typer.Option(help="right before this one")] = None,
) -> None:
    """Move a waiting experiment; its priority becomes that of its new place."""
    if first + last + (before is not None) != 1:
        raise UsageError("give exactly one of --first, --last, --before ID", "", "see `expctl move --help`")
    place: dict[str, Any] = {"before": before} if before is not None else {"first": True} if first else {"last": True}
    with Client(options.server) as client:
        emit_changes([experiment], lambda one: client.move(one, place))
