"""expctl pause: start nothing new on a host."""

from __future__ import annotations

from typing import Annotated

import typer

from expctl.client import Client
from expctl.globals import options
from expctl.output import emit, say

app = typer.Typer(add_completion=False)


@app.command()
def pause(host: Annotated[str, typer.Option(help="the host")] = "local") -> None:
    """Start nothing new on a host. What runs is finished."""
    with Client(options.server) as client:
        found = client.pause(host, paused=True)
    if options.json:
        emit(found)
    else:
        say(f"{host} is {'paused' if found['paused'] else 'running'}")
