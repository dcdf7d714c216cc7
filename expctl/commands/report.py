"""expctl report: a night as one would write it down."""

from __future__ import annotations

from typing import Annotated

import typer

from expctl.client import Client
from expctl.globals import options
from expctl.moments import since_evening, until
from expctl.output import emit

app = typer.Typer(add_completion=False)


@app.command()
def report(
    since: Annotated[str | None, typer.Option(help="from here on: 18:00 (the last one is the default), 12h, `yesterday 20:00`")] = None,
    to: Annotated[str | None, typer.Option("--until", help="up to here; default: now")] = None,
    host: Annotated[str | None, typer.Option(help="only this host")] = None,
) -> None:
    """What was tried, verdicts with their evidence, failures by cause, what it cost, and what to try next: Markdown on stdout."""
    asked = {"since": since_evening(since), **until(to), **({"host": host} if host else {})}
    with Client(options.server) as client:
        found = client.report(**asked)
    if options.json:
        emit(found)
    elif options.quiet:
        for one in found["ended"]:
            print(one["experiment"]["id"])
    else:
        from expctl.views.report import markdown  # noqa: PLC0415 - drawing is not free

        print(markdown(found), end="", flush=True)
