"""expctl logs: the engine's log."""

from __future__ import annotations

from typing import Annotated

import typer

from expctl.client import Client
from expctl.globals import options
from expctl.output import emit_line

app = typer.Typer(add_completion=False)


@app.command()
def logs(
    experiment: Annotated[int, typer.Argument(metavar="ID", help="an experiment")],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="go on until it has finished")] = False,
    step: Annotated[str | None, typer.Option(help="only what was logged during this step")] = None,
) -> None:
    """Print the engine's log as it was copied from the host."""
    with Client(options.server) as client:
        for line in client.log(experiment, step=step, follow=follow):
            if options.json:
                emit_line({"line": line})
            else:
                print(line.rsplit("\r", 1)[-1], flush=follow)
