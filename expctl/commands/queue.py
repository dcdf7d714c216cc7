"""expctl queue: how the night is going."""

from __future__ import annotations

from typing import Annotated

import typer

from expctl.client import Client
from expctl.globals import options
from expctl.output import console, emit, say

app = typer.Typer(add_completion=False)


@app.command()
def queue(
    status: Annotated[list[str] | None, typer.Option(help="only these: held, queued, running, stopping, finished")] = None,
    host: Annotated[str | None, typer.Option(help="only this host")] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", help="how many", min=1, max=500)] = 20,
) -> None:
    """What runs, what waits, and how the latest ended."""
    with Client(options.server) as client:
        items = client.experiments(statuses=status or [], host=host, limit=limit)
        hosts = [] if options.json or options.quiet else client.hosts()
    if options.json:
        emit(items)
    elif options.quiet:
        for item in items:
            print(item["id"])
    elif not items:
        say("nothing was submitted yet; try: expctl submit FILE")
    else:
        from expctl.views.queue import drawn, nights, summary  # noqa: PLC0415 - drawing is not free

        terminal = console()
        terminal.print(drawn(items, terminal.width))
        say(summary(items, hosts))
        for night in nights(hosts):
            say(night)
    if hosts:
        from expctl.views.hosts import shift_lines  # noqa: PLC0415 - as above

        for line in shift_lines(hosts):
            console(stderr=True).print(line)
