"""expctl api: the HTTP API alone."""

from __future__ import annotations

from typing import Annotated

import typer

from expctl.datafolder import Data, settings_of

app = typer.Typer(add_completion=False)


@app.command()
def api(
    port: Annotated[int, typer.Option(help="port to listen on")] = 8700,
    bind: Annotated[str, typer.Option(help="address to listen on; anything but loopback is open to your network")] = "127.0.0.1",
    data: Data = None,
) -> None:
    """Serve the HTTP API on a database that is migrated already."""
    from expctl.serve import run_api  # noqa: PLC0415 - heavy

    run_api(settings_of(data), bind, port)
