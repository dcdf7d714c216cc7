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
) -> None:
    """Run API, one worker and the steward on this machine, with the host `local`. Ctrl-C leaves a running engine alone."""
    from expctl.embedded import Embedded  # noqa: PLC0415 - heavy
    from expctl.serve import stop_event  # noqa: PLC0415 - heavy

    settings = settings_of(data, make=True)
    stop = stop_event()
    with Embedded(settings, port, {"local": {"experiment_port": experiment_port}}) as service:
        say(f"expctl is up at {service.url}, host local, data in {settings.data_dir}")
        hint = "" if port == 8700 else f" --server {service.url}"  # noqa: PLR2004 - the default above
        say(f"submit with: expctl submit FILE{hint}      API: {service.url}/docs      stop: Ctrl-C")
        service.supervise(stop)
    say("stopped; an engine that was running keeps running and is adopted by the next `expctl up`")
