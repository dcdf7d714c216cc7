"""expctl submit: queue the experiments of a file."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from expctl.globals import options
from expctl.hostclient import HostClient
from expctl.output import emit, say

app = typer.Typer(add_completion=False)


@app.command()
def submit(
    file: Annotated[str, typer.Argument(help="an experiment file, or - for standard input")],
    change: Annotated[list[str] | None, typer.Option("--set", help="change a key, such as bench.repeat=3; may be given again")] = None,
    sweep: Annotated[list[str] | None, typer.Option(help="one experiment per value, such as KEY=3,5,7; may be given again")] = None,
    again: Annotated[bool, typer.Option("--again", help="run even what was measured already")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be queued, and queue nothing")] = False,
    idempotency_key: Annotated[str | None, typer.Option(help="the same key is queued once, however often it is sent")] = None,
    now: Annotated[bool, typer.Option("--now", help="allow one shift outside the host's window")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="watch until all have finished; exit 3 if one did not succeed")] = False,
) -> int:
    """Queue experiments; prints their ids. Nothing is queued unless every one in the file is right."""
    from expctl import specfiles  # noqa: PLC0415 - the other verbs read no files

    specs = [spec.model_dump(mode="json", by_alias=True) for spec in specfiles.read(file, change or [], sweep or [])]
    if dry_run:
        return _dry_run(specs)
    with HostClient(options.server) as client:
        answer = client.submit(specs if len(specs) > 1 else specs[0], key=idempotency_key, again=again)
        made = answer if isinstance(answer, list) else [answer]
        if options.json:
            emit(answer)
        else:
            for one in made:
                _tell(one)
                print(one["id"], flush=True)
        ids = [int(one["id"]) for one in made]
        for host in {one["host"] for one in made if one["status"] == "queued"} if now else ():
            client.allow_opening(host)
        if all(one["status"] == "finished" for one in made):
            return 0
        say(f"watch: expctl watch {ids[0]}      stop: expctl cancel {' '.join(map(str, ids))}")
        if follow:
            from expctl.views.watching import follow as follow_all  # noqa: PLC0415 - as above

            return follow_all(client, ids)
    return 0


def _tell(one: dict[str, Any]) -> None:
    if one["status"] == "finished":
        say(f"{one['id']}  {one['name']}: measured already; --again runs it again")
    else:
        say(f"queued {one['id']}  {one['name']}  ({one['where_text']})")
        if one.get("eta_text"):
            say(f"    {one['eta_text']}")


def _dry_run(specs: list[dict[str, Any]]) -> int:
    """What would be queued, and with which command line."""
    from expctl.dryrun import plan  # noqa: PLC0415 - only for a dry run

    plans = [plan(spec) for spec in specs]
    if options.json:
        emit(plans)
        return 0
    for one in plans:
        say(f"would queue {one['name']} on {one['host']}")
        print(one["command"])
    return 0
