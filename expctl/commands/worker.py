"""expctl worker: the worker of one host."""

from __future__ import annotations

from typing import Annotated

import typer

from expctl.datafolder import Data, settings_of

app = typer.Typer(add_completion=False)


@app.command()
def worker(
    host: Annotated[str, typer.Option(help="the host to work on, as registered")],
    data: Data = None,
) -> None:
    """Run what is due on one host. TERM hands the host over and leaves what runs there running."""
    from expctl.serve import run_worker  # noqa: PLC0415 - heavy

    run_worker(settings_of(data), host)
