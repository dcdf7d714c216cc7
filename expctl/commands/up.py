"""expctl up: the embedded service."""

from __future__ import annotations

from typing import Annotated

import typer

from expctl.datafolder import Data, settings_of
from expctl.output import say

app = typer.Typer(add_completion=False)


@app.command()
def up(
    port: Annotated[int, typer.Option(help="port of the API, on loopback", min=1, max=65535)] = 8700,
    data: Data = None,
    experiment_port: Annotated[int, typer.Option(help="port that engines are started on", min=1, max=65535)] = 8001,
    only_local: Annotated[
        bool, typer.Option("--only-local", envvar="EXPCTL_ONLY_LOCAL", help="no workers for other hosts: they have theirs elsewhere")
    ] = False,
) -> None:
    """Run API, steward, and a worker for every host, also for those added later. Ctrl-C leaves a running engine alone."""
    from expctl.embedded import Asked, Embedded  # noqa: PLC0415 - heavy

    settings = settings_of(data, make=True)
    stop = Asked()
    with Embedded(settings, port, {"local": {"experiment_port": experiment_port}}, only_these=only_local) as service:
        say(f"expctl is up at {service.url}, data in {settings.data_dir}")
        hint = "" if port == 8700 else f" --server {service.url}"  # noqa: PLR2004 - the default above
        say(f"submit with: expctl submit FILE{hint}      API: {service.url}/docs      stop: Ctrl-C")
        service.supervise(stop)
    say("stopped; what runs on the hosts keeps running, and the next `expctl up` adopts it")
