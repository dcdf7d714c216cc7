"""expctl submit: queue the experiments of a file."""

from __future__ import annotations

from typing import Annotated

import typer

from expctl.client import Client
from expctl.globals import options
from expctl.output import emit, say

app = typer.Typer(add_completion=False)


@app.command()
def submit(
    file: Annotated[str, typer.Argument(help="an experiment file, or - for standard input")],
    change: Annotated[list[str] | None, typer.Option("--set", help="change a key, such as bench.repeat=3; may be given again")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="watch until everything submitted has finished")] = False,
) -> int:
    """Queue experiments; prints their ids. Nothing is queued unless every one in the file is right."""
    from expctl import specfiles  # noqa: PLC0415 - the other verbs read no files

    specs = specfiles.read(file, change or [])
    with Client(options.server) as client:
        made = [client.submit(spec.model_dump(mode="json")) for spec in specs]
        if options.json:
            emit(made[0] if len(made) == 1 else made)
        else:
            for one in made:
                say(f"queued {one['id']}  {one['name']}  ({one['where_text']})")
                print(one["id"], flush=True)
        ids = [int(one["id"]) for one in made]
        say(f"watch: expctl watch {ids[0]}      stop: expctl cancel {' '.join(map(str, ids))}")
        if follow:
            from expctl.views.watching import follow as follow_all  # noqa: PLC0415 - as above

            return follow_all(client, ids)
    return 0
