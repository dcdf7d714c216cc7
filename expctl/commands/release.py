"""expctl release: let held experiments start."""

from __future__ import annotations

from typing import Annotated

import typer

from expctl.client import Client
from expctl.globals import options
from expctl.output import emit_changes

app = typer.Typer(add_completion=False)


@app.command()
def release(ids: Annotated[list[int], typer.Argument(help="held experiments")]) -> None:
    """Let held experiments start when they are due."""
    with Client(options.server) as client:
        emit_changes(ids, lambda one: client.act("release", one))
