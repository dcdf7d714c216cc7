"""expctl cancel: end experiments."""

from __future__ import annotations

from typing import Annotated

import typer

from expctl.client import Client
from expctl.globals import options
from expctl.output import emit_changes

app = typer.Typer(add_completion=False)


@app.command()
def cancel(ids: Annotated[list[int], typer.Argument(help="experiments")]) -> None:
    """End experiments: a waiting one at once, a running one as soon as its worker has stopped its engine."""
    with Client(options.server) as client:
        emit_changes(ids, client.cancel)
