"""expctl show: everything about one experiment."""

from __future__ import annotations

from typing import Annotated

import typer

from expctl.client import Client
from expctl.globals import options
from expctl.output import draw, emit

app = typer.Typer(add_completion=False)


@app.command()
def show(experiment: Annotated[int, typer.Argument(metavar="ID", help="an experiment")]) -> None:
    """Where it is, what each step found, what it runs, and why it ended."""
    with Client(options.server) as client:
        found = client.experiment(experiment)
    if options.json:
        emit(found)
        return
    from expctl.views.experiment import render  # noqa: PLC0415 - drawing is not free

    draw(render(found))
