"""expctl db upgrade: bring the database to this version's migration."""

from __future__ import annotations

import typer

from expctl.datafolder import Data, settings_of
from expctl.globals import options
from expctl.output import emit, say

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Manage the database.")


@app.callback()
def db() -> None:
    """Manage the database."""


@app.command()
def upgrade(data: Data = None) -> None:
    """Bring the database up to date; nothing happens where it is."""
    from expctl.serve import upgrade_database  # noqa: PLC0415 - heavy

    at = upgrade_database(settings_of(data, make=True))
    if options.json:
        emit({"migration": at})
    else:
        say(f"the database is at migration {at}")
