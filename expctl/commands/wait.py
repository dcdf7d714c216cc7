"""expctl wait: wait for experiments to finish."""

from __future__ import annotations

from typing import Annotated

import typer

from expctl.answers import ExperimentDetail
from expctl.client import Client
from expctl.globals import options
from expctl.output import emit, say
from service.domain.durations import seconds

app = typer.Typer(add_completion=False)

TIMED_OUT = 124
UNSUCCESSFUL = 3


@app.command()
def wait(
    ids: Annotated[list[int], typer.Argument(help="experiments")],
    timeout: Annotated[str | None, typer.Option(help="give up after this long, such as 8h or 90s; 0 looks once")] = None,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="return at the first that does not succeed")] = False,
) -> int:
    """Exit 0 when all succeeded, 3 when one did not, 124 when the time is up."""
    limit = None if timeout is None else _seconds(timeout)
    with Client(options.server) as client:
        seen = client.wait(list(dict.fromkeys(ids)), timeout_s=limit, fail_fast=fail_fast, told=_tell)
    if options.json:
        emit(seen[0] if len(seen) == 1 else seen)
    failed = any(one.finished and not one.succeeded for one in seen)
    if not failed and all(one.finished for one in seen):
        return 0
    if not (failed and fail_fast) and not all(one.finished for one in seen):
        say("the time is up; what runs keeps running")
    return UNSUCCESSFUL if failed else TIMED_OUT


def _tell(ended: ExperimentDetail) -> None:
    say(f"{ended.id}  {ended.name}: {ended.status_text}")


def _seconds(text: str) -> float:
    try:
        return 0.0 if text.strip() == "0" else seconds(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
