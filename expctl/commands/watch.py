"""expctl watch: follow experiments as they go."""

from __future__ import annotations

from typing import Annotated

import typer

from expctl.client import Client
from expctl.globals import options
from expctl.output import say

app = typer.Typer(add_completion=False)


@app.command()
def watch(experiment: Annotated[int | None, typer.Argument(metavar="[ID]", help="default: what runs, and then what comes")] = None) -> int:
    """A live view in a terminal, a line per change in a pipe. Ctrl-C leaves the experiment running.

    Exits 0 when all that was watched succeeded, 3 when one did not, 130 after Ctrl-C.
    """
    from expctl.views.watching import follow  # noqa: PLC0415 - drawing is not free

    with Client(options.server) as client:
        if experiment is not None:
            client.experiment(experiment)
            return follow(client, [experiment])
        open_ones = [int(item["id"]) for item in client.experiments(statuses=["running", "stopping", "queued"])]
        if not open_ones:
            say("nothing runs and nothing waits")
            return 0
        return follow(client, sorted(open_ones))
