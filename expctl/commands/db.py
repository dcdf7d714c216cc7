"""expctl db upgrade: bring the database to this version's migration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from expctl.output import say

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Manage the database.")


@app.callback()
def db() -> None:
    """Manage the database."""


@app.command()
def upgrade(data: Annotated[Path | None, typer.Option(help="data folder; default EXPCTL_DATA_DIR")] = None) -> None:
    """Bring the database up to date; nothing happens where it is."""
    from expctl.serve import settings_for, upgrade_database  # noqa: PLC0415 - heavy

    say(f"the database is at migration {upgrade_database(settings_for(data))}")
