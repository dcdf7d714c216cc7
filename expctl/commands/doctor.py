"""expctl doctor: what this machine and this service need, and the remedy for what is missing."""

from __future__ import annotations

import typer

from expctl.globals import options
from expctl.output import emit

app = typer.Typer(add_completion=False)


@app.command()
def doctor() -> int:
    """Check Python, data folder, disk, database, service, GPU tool and engine; exit 1 if something is wrong."""
    from expctl.checkup import run_checks  # noqa: PLC0415 - heavy

    found = run_checks()
    if options.json:
        emit(found)
    for one in found if not options.json else []:
        sign = {"ok": "✓", "warning": "!", "wrong": "✗"}[one["state"]]
        print(f"{sign} {one['what']}: {one['found']}")
        if one["todo"]:
            print(f"    {one['todo']}")
    return 1 if any(one["state"] == "wrong" for one in found) else 0
