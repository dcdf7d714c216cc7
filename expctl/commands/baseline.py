"""expctl baseline: the pinned baseline of a model on a host."""

from __future__ import annotations

from typing import Annotated

import typer

from expctl.client import Client
from expctl.globals import options
from expctl.output import emit, say

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Show, pin or forget baselines.")

Id = Annotated[int, typer.Argument(metavar="ID", help="a successful experiment")]


@app.command()
def show() -> None:
    """Every pinned baseline."""
    with Client(options.server) as client:
        found = client.baselines()
    if options.json:
        emit(found)
    elif not found:
        say("no baseline is pinned; pin one with: expctl baseline set ID")
    for one in found if not options.json else []:
        print(f"{one['experiment_id']}  {one['name']}  ({one['served_model']} on {one['host']})")


@app.command("set")
def pin(experiment: Id) -> None:
    """Make a successful experiment the baseline of its model on its host."""
    with Client(options.server) as client:
        found = client.pin(experiment, pinned=True)
    if options.json:
        emit(found)
    else:
        say(f"{experiment} is now the baseline of {found['served_model']} on {found['host']}")


@app.command()
def unset(experiment: Id) -> None:
    """Forget a pinned baseline."""
    with Client(options.server) as client:
        found = client.pin(experiment, pinned=False)
    if options.json:
        emit(found)
    else:
        say(f"{found['served_model']} on {found['host']} has no pinned baseline any more")
