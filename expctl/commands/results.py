"""expctl results: what an experiment measured."""

from __future__ import annotations

from typing import Annotated

import typer

from expctl.client import Client
from expctl.globals import options
from expctl.output import console, emit
from service.domain.errors import NotReady

app = typer.Typer(add_completion=False)


@app.command()
def results(experiment: Annotated[int, typer.Argument(metavar="ID", help="an experiment")]) -> None:
    """Per bench phase and prompt: TTFT, TPOT, tokens/s, speculation; failed requests with their reasons. Of a command: how it ended."""
    with Client(options.server) as client:
        found = client.results(experiment)
    if options.json:
        emit(found)
        return
    if not found["phases"] and not (found["experiment"]["outcome"] and found["experiment"]["facts"].get("command")):
        where = found["experiment"]["status_text"]
        raise NotReady(f"experiment {experiment} has no results", f"it is: {where}", f"follow it with `expctl watch {experiment}`")
    from expctl.views.results import render  # noqa: PLC0415 - drawing is not free

    console().print(render(found))
