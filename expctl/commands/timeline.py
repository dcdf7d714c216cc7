"""expctl timeline: what each host did over a night."""

from __future__ import annotations

from typing import Annotated

import typer

from expctl.client import Client
from expctl.globals import options
from expctl.moments import since_evening, until
from expctl.output import draw, emit

app = typer.Typer(add_completion=False)


@app.command()
def timeline(
    since: Annotated[str | None, typer.Option(help="from here on: 18:00 (the last one is the default), 12h, `yesterday 20:00`")] = None,
    to: Annotated[str | None, typer.Option("--until", help="up to here; default: now, and what is foreseen")] = None,
    host: Annotated[str | None, typer.Option(help="only this host")] = None,
) -> None:
    """A lane a host, a sign a step; time in which nothing ran is folded."""
    asked = {"since": since_evening(since), **until(to), **({"host": host} if host else {})}
    with Client(options.server) as client:
        found = client.timeline(**asked)
    if options.json:
        emit(found)
    elif options.quiet:
        for lane in found["hosts"]:
            for bar in lane["experiments"]:
                print(bar["id"])
    else:
        from expctl.views.timeline import render  # noqa: PLC0415 - drawing is not free

        draw(lambda width: render(found, width))
