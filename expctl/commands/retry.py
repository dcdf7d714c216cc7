"""expctl retry: queue a finished experiment again."""

from __future__ import annotations

from typing import Annotated

import typer

from expctl.client import Client
from expctl.globals import options
from expctl.output import emit, say

app = typer.Typer(add_completion=False)


@app.command()
def retry(experiment: Annotated[int, typer.Argument(metavar="ID", help="a finished experiment")]) -> None:
    """Queue the same again, as a new experiment; prints its id. The old one keeps its results."""
    with Client(options.server) as client:
        made = client.act("retry", experiment)
    if options.json:
        emit(made)
    else:
        say(f"queued {made['id']}, which repeats {experiment}")
        print(made["id"])
