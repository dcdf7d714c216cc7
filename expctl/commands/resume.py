"""expctl resume: let a paused host go on."""

from __future__ import annotations

from typing import Annotated

import typer

from expctl.client import Client
from expctl.globals import options
from expctl.output import emit, say

app = typer.Typer(add_completion=False)


@app.command()
def resume(host: Annotated[str, typer.Option(help="the host")] = "local") -> None:
    """Start what is due on a host again."""
    with Client(options.server) as client:
        found = client.pause(host, paused=False)
    if options.json:
        emit(found)
    else:
        say(f"{host} is {'paused' if found['paused'] else 'running'}")
