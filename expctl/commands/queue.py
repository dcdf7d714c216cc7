"""expctl queue: how the night is going."""

from __future__ import annotations

from typing import Annotated

import typer

from expctl.client import Client
from expctl.globals import options
from expctl.moments import since_evening
from expctl.output import draw, emit, say
from service.domain.status import Status

app = typer.Typer(add_completion=False)


@app.command()
def queue(
    status: Annotated[list[Status] | None, typer.Option(help="only these: held, queued, running, stopping, finished")] = None,
    host: Annotated[str | None, typer.Option(help="only this host")] = None,
    since: Annotated[str | None, typer.Option(help="what ended from here on: 18:00 (the default), 12h, `yesterday 20:00`")] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", help="how many, at most 200 of each kind", min=1, max=500)] = 20,
) -> None:
    """What runs, what waits and until when, what ended and what it is worth. As JSON the newest experiments."""
    began = since_evening(since)
    with Client(options.server) as client:
        if status or options.json or options.quiet:
            _list(client, status or [], host, limit)
            return
        night = client.night(since=began, limit=min(limit, 200), **({"host": host} if host else {}))
    from expctl.views.night import render  # noqa: PLC0415 - drawing is not free

    draw(lambda width: render(night, width), lists=True)
    if not (night["open"] or night["outcomes"]):
        say(_nothing(host))


def _nothing(host: str | None) -> str:
    return f"nothing was submitted for {host} since then" if host else "nothing was submitted since then; try: expctl submit FILE"


def _list(client: Client, status: list[Status], host: str | None, limit: int) -> None:
    items = client.experiments(statuses=status, host=host, limit=limit)
    if options.json:
        emit(items)
    elif options.quiet:
        for item in items:
            print(item["id"])
    elif not items:
        say(f"no experiment is {' or '.join(status)}")
    else:
        from expctl.views.queue import drawn, summary  # noqa: PLC0415 - drawing is not free

        draw(lambda width: drawn(items, width), lists=True)
        say(summary(items, []))
