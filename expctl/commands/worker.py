"""expctl worker: the worker of one host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def worker(
    host: Annotated[str, typer.Option(help="the host to work on, as registered")],
    data: Annotated[Path | None, typer.Option(help="data folder; default EXPCTL_DATA_DIR")] = None,
) -> None:
    """Run what is due on one host. TERM hands the host over and leaves what runs there running."""
    from expctl.serve import run_worker, settings_for  # noqa: PLC0415 - heavy

    run_worker(settings_for(data), host)
