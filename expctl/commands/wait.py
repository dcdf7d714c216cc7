"""expctl wait: wait for experiments to finish."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from expctl.client import PATIENCE_S, Client
from expctl.globals import options
from expctl.output import emit, say
from service.domain.durations import seconds

app = typer.Typer(add_completion=False)

TIMED_OUT = 124
UNSUCCESSFUL = 3
POLL_S = 0.5
FIRST_PATIENCE_S = 10.0
"""A service that has just been killed is back within seconds."""


@app.command()
def wait(
    ids: Annotated[list[int], typer.Argument(help="experiments")],
    timeout: Annotated[str | None, typer.Option(help="give up after this long, such as 8h or 90s; 0 looks once")] = None,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="return at the first that does not succeed")] = False,
) -> int:
    """Exit 0 when all succeeded, 3 when one did not, 124 when the time is up."""
    deadline = None if timeout is None else time.monotonic() + _seconds(timeout)
    wanted = list(dict.fromkeys(ids))
    seen: dict[int, dict[str, Any]] = {}
    with Client(options.server) as client:
        code = _until_finished(client, wanted, seen, deadline, fail_fast=fail_fast)
    if options.json:
        shown = [seen[one] for one in wanted]
        emit(shown[0] if len(shown) == 1 else shown)
    return code


def _until_finished(client: Client, ids: list[int], seen: dict[int, dict[str, Any]], deadline: float | None, *, fail_fast: bool) -> int:
    """Look again and again; `seen` holds what each was when it was last looked at."""
    patience = FIRST_PATIENCE_S
    while True:
        for one in ids:
            if one in seen and seen[one]["status"] == "finished":
                continue
            client.patience_s = patience if deadline is None else min(patience, max(0.0, deadline - time.monotonic()))
            seen[one] = client.experiment(one)
            if seen[one]["status"] == "finished":
                say(f"{one}  {seen[one]['name']}: {seen[one]['status_text']}")
        patience = PATIENCE_S
        ended = [item for item in seen.values() if item["status"] == "finished"]
        failed = any(item["outcome"] != "succeeded" for item in ended)
        if len(ended) == len(ids) or (failed and fail_fast):
            return UNSUCCESSFUL if failed else 0
        if deadline is not None and time.monotonic() >= deadline:
            say("the time is up; what runs keeps running")
            return UNSUCCESSFUL if failed else TIMED_OUT
        time.sleep(POLL_S if deadline is None else min(POLL_S, max(0.0, deadline - time.monotonic())))


def _seconds(text: str) -> float:
    try:
        return 0.0 if text.strip() == "0" else seconds(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
