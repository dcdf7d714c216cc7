"""expctl steward: the ticking things that belong to no host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def steward(data: Annotated[Path | None, typer.Option(help="data folder; default EXPCTL_DATA_DIR")] = None) -> None:
    """Tell when a worker fell silent, and when it is back."""
    from expctl.serve import run_steward, settings_for  # noqa: PLC0415 - heavy

    run_steward(settings_for(data))
