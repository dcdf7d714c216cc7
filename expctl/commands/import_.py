"""expctl import: other tools' result files in our definitions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from expctl.globals import options
from expctl.output import console, emit

app = typer.Typer(add_completion=False)


@app.command()
def import_(files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="result files of any of the tools")]) -> None:
    """Read results of `vllm bench serve`, guidellm, aiperf and `expctl bench`, and set them side by side in one set of definitions.

    Several files are compared with the first. What a tool measures another way is named and never taken for ours.
    """
    from workers.bench.imports.reading import read_file  # noqa: PLC0415 - only this verb needs it

    found = [one for file in files for one in read_file(file)]
    plain = [one.model_dump(mode="json", by_alias=True) for one in found]
    if options.json:
        emit(plain[0] if len(plain) == 1 else plain)
        return
    from expctl.views.imported import render  # noqa: PLC0415 - drawing is not free

    console().print(render(plain))
