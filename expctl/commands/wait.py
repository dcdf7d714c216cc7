"""expctl wait: wait for experiments to finish."""

from __future__ import annotations

from typing import Annotated

import typer

from expctl.answers import ExperimentDetail
from expctl.client import Client
from expctl.exitcodes import ExitCode
from expctl.globals import options
from expctl.moments import time_limit
from expctl.output import emit, say

app = typer.Typer(add_completion=False)


@app.command()
def wait(
    ids: Annotated[list[int], typer.Argument(help="experiments")],
    timeout: Annotated[str | None, typer.Option(help="give up after this long, such as 8h or 90s; 0 looks once")] = None,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="return at the first that does not succeed")] = False,
) -> int:
    """Exit 0 when all succeeded, 3 when one did not, 124 when the time is up."""
    limit = None if timeout is None else time_limit(timeout)
    with Client(options.server) as client:
        seen = client.wait(list(dict.fromkeys(ids)), timeout_s=limit, fail_fast=fail_fast, told=_tell)
    if options.json:
        emit(seen[0] if len(seen) == 1 else seen)
    failed = any(one.finished and not one.succeeded for one in seen)
    if not failed and all(one.finished for one in seen):
        return 0
    if not (failed and fail_fast) and not all(one.finished for one in seen):
        say("the time is up; what runs keeps running")
    return ExitCode.UNSUCCESSFUL if failed else ExitCode.TIMED_OUT


def _tell(ended: ExperimentDetail) -> None:
    say(f"{ended.id}  {ended.name}: {ended.status_text}")
