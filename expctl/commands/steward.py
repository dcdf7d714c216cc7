"""expctl steward: the ticking things that belong to no host."""

from __future__ import annotations

import typer

from expctl.datafolder import Data, settings_of

app = typer.Typer(add_completion=False)


@app.command()
def steward(data: Data = None) -> None:
    """Tell when a worker fell silent, and when it is back."""
    from expctl.serve import run_steward  # noqa: PLC0415 - heavy

    run_steward(settings_of(data))
