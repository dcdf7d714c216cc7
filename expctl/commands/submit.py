"""expctl submit: queue the experiments of a file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from expctl.globals import options
from expctl.hostclient import HostClient
from expctl.output import emit, say
from service.domain.errors import ExpctlError

LOOK_S, REMARK_S = 120.0, 8.0
"""How long a look on the host is waited for: by a dry run, which is there for it, and after a submission."""

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
            _tell_loads(made)
        ids = [int(one["id"]) for one in made]
        for host in {one["host"] for one in made if one["status"] == "queued"} if now else ():
            client.allow_opening(host)
        if all(one["status"] == "finished" for one in made):
            return 0
        say(f"watch: expctl watch {ids[0]}      stop: expctl cancel {' '.join(map(str, ids))}")
        if not (options.json or options.quiet):
            queued = {one["name"] for one in made if one["status"] == "queued"}
            _remarks([spec for spec in specs if spec["name"] in queued])
        if follow:
            from expctl.views.watching import follow as follow_all  # noqa: PLC0415 - as above

            return follow_all(client, ids)
    return 0


def _tell_loads(made: Sequence[dict[str, Any]]) -> None:
    """How much of it is several loads of one configuration."""
    from service.domain.loads import counted  # noqa: PLC0415 - as in the verb

    if any(one.get("load_text") for one in made):
        again = sum(one["recheck_of"] is not None for one in made)
        say(f"that is {counted(len(made) - again, again)}")


def _tell(one: dict[str, Any]) -> None:
    from expctl.views.queue import named  # noqa: PLC0415 - drawing is not free

    if one["status"] == "finished":
        say(f"{one['id']}  {named(one)}: measured already; --again runs it again")
    else:
        say(f"queued {one['id']}  {named(one)}  ({one['where_text']})")
        if one.get("eta_text"):
            say(f"    {one['eta_text']}")


def _dry_run(specs: list[dict[str, Any]]) -> int:
    """What would be queued, and with which command line."""
    from expctl.dryrun import plan  # noqa: PLC0415 - only for a dry run
    from expctl.preflight import is_wrong, looked, sentence  # noqa: PLC0415 - as above

    plans = [plan(spec) for spec in specs]
    found = looked(specs, [one["findings"] for one in plans], within_s=LOOK_S)
    plans = [one | {"findings": findings} for one, findings in zip(plans, found, strict=True)]
    code = int(any(is_wrong(findings) for findings in found))
    if options.json:
        emit(plans)
        return code
    for one in plans:
        say(f"would queue {one['name']} on {one['host']}" + (f": {one['loads']} loads" if one["loads"] > 1 else ""))
        print(one["command"])
        for finding in one["findings"]:
            say(f"    {sentence(finding)}")
    if any(one["loads"] > 1 or one["recheck_baseline"] for one in plans):
        from service.domain.loads import planned  # noqa: PLC0415 - as above
        from service.domain.spec import Spec  # noqa: PLC0415 - as above

        say(f"that would be {planned([Spec.model_validate(spec) for spec in specs])}")
    return code


def _remarks(specs: list[dict[str, Any]]) -> None:
    """What speaks against them. They are queued all the same, since the host may be mended until it is their turn.

    Only a person at a terminal waits for the hosts' own answer: a script must not.
    """
    found: list[list[dict[str, Any]]] = [[] for _ in specs]
    try:
        if any(spec["engine"].get("speculative") for spec in specs):
            from expctl.dryrun import objections  # noqa: PLC0415 - only where there is something to find without the host

            found = [objections(spec) for spec in specs]
        if sys.stderr.isatty():
            from expctl.preflight import looked  # noqa: PLC0415 - as above

            found = looked(specs, found, within_s=REMARK_S)
    except ExpctlError as error:
        say(f"not looked at before their start: {error.what}")
    for spec, findings in zip(specs, found, strict=True):
        for finding in findings:
            if finding["verdict"] != "good":
                from expctl.preflight import sentence  # noqa: PLC0415 - as above

                say(f"remark on {spec['name']}: {sentence(finding)}")
