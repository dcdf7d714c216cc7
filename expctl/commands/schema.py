"""expctl schema: the JSON Schema of the experiment file."""

from __future__ import annotations

import typer

from expctl.output import emit

app = typer.Typer(add_completion=False)


@app.command()
def schema() -> None:
    """Print the JSON Schema of the experiment file; editors complete from it."""
    from service.domain.specschema import json_schema  # noqa: PLC0415 - heavy

    emit(json_schema())
