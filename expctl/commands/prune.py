"""expctl prune: remove the bulk of old experiments."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from expctl.client import Client
from expctl.globals import options
from expctl.moments import duration
from expctl.output import emit, say
from service.domain.errors import UsageError

app = typer.Typer(add_completion=False)

LONGEST_S = 1e10
LARGEST = 1e18
UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


@app.command()
def prune(
    older_than: Annotated[str | None, typer.Option(help="of experiments that finished longer ago than this, such as 90d")] = None,
    max_size: Annotated[str | None, typer.Option(help="the oldest until the rest fits, such as 10G")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="do it; otherwise what would go is only shown")] = False,
) -> None:
    """Remove engine logs and answers' texts. Outcomes, summaries, figures, events and pinned baselines stay.

    A command's own folder on its host goes at the end of the next shift there.
    """
    if older_than is None and max_size is None:
        raise UsageError("nothing says what may go", "", "give --older-than or --max-size")
    params: dict[str, float] = {}
    if older_than is not None:
        params["older_than_s"] = _seconds(older_than)
    if max_size is not None:
        params["max_bytes"] = _bytes(max_size)
    with Client(options.server) as client:
        going = client.prune(params, really=yes)
    if options.json:
        emit(going)
        return
    for one in going:
        print(f"{one['experiment_id']}  {one['name']}  {one['bytes'] / 1e6:.1f} MB  finished {one['finished_at']}")
    total = sum(one["bytes"] for one in going) / 1e6
    say(
        f"{'removed' if yes else 'would remove'} {total:.1f} MB of {len(going)} experiments"
        + ("" if yes or not going else "; --yes does it")
    )


def _seconds(text: str) -> float:
    found = duration("--older-than", text)
    if found > LONGEST_S:
        raise UsageError(f"--older-than {text} is too long", "no experiment is that old", "write it like 90d")
    return found


def _bytes(text: str) -> int:
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS and text else (text, "")
    try:
        size = float(number) * UNITS[unit]
    except ValueError:
        size = math.nan
    if not 0 <= size <= LARGEST:
        raise UsageError(f"--max-size {text} is no size", "", "write it like 500M or 10G")
    return int(size)
