"""expctl wait: wait for experiments to finish."""

from __future__ import annotations

import time
from typing import Annotated

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
    timeout: Annotated[str | None, typer.Option(help="give up after this long, such as 8h or 90s")] = None,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="return at the first that does not succeed")] = False,
) -> int:
    """Exit 0 when all succeeded, 3 when one did not, 124 when the time is up."""
    deadline = None if timeout is None else time.monotonic() + _seconds(timeout)
    ended: dict[int, dict[str, object]] = {}
    code = 0
    with Client(options.server) as client:
        client.patience_s = FIRST_PATIENCE_S
        while len(ended) < len(set(ids)):
            for one in ids:
                found = client.experiment(one) if one not in ended else None
                if found is not None and found["status"] == "finished":
                    ended[one] = found
                    say(f"{one}  {found['name']}: {found['status_text']}")
            client.patience_s = PATIENCE_S
            failed = any(found["outcome"] != "succeeded" for found in ended.values())
            if failed and fail_fast:
                break
            if deadline is not None and time.monotonic() > deadline and len(ended) < len(set(ids)):
                say("the time is up; what runs keeps running")
                code = TIMED_OUT
                break
            if len(ended) < len(set(ids)):
                time.sleep(POLL_S)
    if options.json:
        found_all = [ended[one] for one in ids if one in ended]
        emit(found_all[0] if len(ids) == 1 and found_all else found_all)
    if any(found["outcome"] != "succeeded" for found in ended.values()):
        return UNSUCCESSFUL
    return code


def _seconds(text: str) -> float:
    try:
        return seconds(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
