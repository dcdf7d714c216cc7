"""expctl results: what an experiment measured."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from expctl.client import Client
from expctl.globals import options
from expctl.output import console, emit
from service.domain.errors import NotReady, UsageError

app = typer.Typer(add_completion=False)


class Format(StrEnum):
    """How results are written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MD = "md"


@app.command()
def results(
    experiment: Annotated[int, typer.Argument(metavar="ID", help="an experiment")],
    form: Annotated[Format, typer.Option("--format", help="csv: a row a request; units and definitions stand at its head")] = Format.TABLE,
    ids: Annotated[bool, typer.Option("--ids", help="with the ids of the tokens of prompts and answers, as JSON")] = False,
) -> None:
    """Per bench phase and prompt: TTFT, TPOT, tokens/s, speculation; failed requests with their reasons. Of a command: how it ended."""
    if ids and not options.json and form != Format.JSON:
        raise UsageError("--ids is written as JSON only", "ids are as many as the tokens", "add --json")
    with Client(options.server) as client:
        found = client.results(experiment, ids=ids)
    if options.json:
        emit(found)
        return
    if not found["phases"] and not (found["experiment"]["outcome"] and found["experiment"]["facts"].get("command")):
        where = found["experiment"]["status_text"]
        raise NotReady(f"experiment {experiment} has no results", f"it is: {where}", f"follow it with `expctl watch {experiment}`")
    if form == Format.TABLE:
        from expctl.views.results import render  # noqa: PLC0415 - drawing is not free

        console().print(render(found))
        return
    _write(found, form)


def _write(found: dict[str, Any], form: Format) -> None:
    from expctl.views.export import as_csv, as_markdown  # noqa: PLC0415 - rarely wanted
    from service.domain.definitions import DEFINITIONS  # noqa: PLC0415 - as above

    if form == Format.JSON:
        emit({**found, "definitions": DEFINITIONS})
    else:
        print(as_csv(found) if form == Format.CSV else as_markdown(found), end="", flush=True)
