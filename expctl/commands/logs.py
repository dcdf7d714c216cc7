"""expctl logs: the engine's log."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from expctl.client import Client
from expctl.globals import options
from expctl.output import emit_line
from service.domain.status import StepName

app = typer.Typer(add_completion=False)


@app.command()
def logs(
    experiment: Annotated[int, typer.Argument(metavar="ID", help="an experiment")],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="go on until it has finished")] = False,
    step: Annotated[StepName | None, typer.Option(help="only what was logged during this step")] = None,
) -> None:
    """Print the engine's log as it was copied from the host."""
    with Client(options.server) as client:
        if follow:
            for piece in client.follow_log(experiment):
                if step in {None, piece["step"]}:
                    _show(str(piece["text"]).split("\n"))
        else:
            _show(client.log(experiment, step=step))


def _show(lines: Iterable[str]) -> None:
    for line in lines:
        if options.json:
            emit_line({"line": line})
        else:
            # Of a bar that redraws itself, its last state.
            print(line.rsplit("\r", 1)[-1])
    sys.stdout.flush()
