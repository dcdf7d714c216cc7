"""expctl hold: keep experiments from starting."""

from __future__ import annotations

from typing import Annotated

import typer

from expctl.client import Client
from expctl.globals import options
from expctl.output import emit_changes

app = typer.Typer(add_completion=False)


@app.command()
def hold(
    ids: Annotated[list[int], typer.Argument(help="queued experiments")],
    because: Annotated[str, typer.Option("-m", "--because", help="why, for those who wonder")] = "",
) -> None:
    """Keep queued experiments from starting until they are released."""
    with Client(options.server) as client:
        emit_changes(ids, lambda one: client.act("hold", one, {"because": because}))
