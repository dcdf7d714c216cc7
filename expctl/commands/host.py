"""expctl host: add hosts, look at them, have their workers check them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from expctl import hostadd, hostasked
from expctl.globals import options
from expctl.hostadd import Host
from expctl.hostclient import HostClient
from expctl.output import draw, emit, emit_list, say

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Add hosts, look at them, check them, give them back.")

app.command()(hostadd.add)


@app.command("list")
def listing() -> None:
    """Every host."""
    with HostClient(options.server) as client:
        found = client.hosts()

    def drawn() -> None:
        from expctl.views.hosts import table  # noqa: PLC0415 - drawing is not free

        draw(table(found), lists=True)

    emit_list(found, "name", "no host is known; add one with: expctl host add NAME", drawn)


@app.command()
def show(name: Host) -> None:
    """How a host is reached, what its shift is at, when its window opens, and what its latest check found."""
    with HostClient(options.server) as client:
        found = client.host(name)
    if options.json:
        emit(found)
        return
    from expctl.views.hosts import detail  # noqa: PLC0415 - as above

    draw(detail(found))


app.command()(hostasked.check)
app.command()(hostasked.trust)
app.command()(hostasked.install)
app.command()(hostasked.rehearse)


@app.command("give-back")
def give_back(name: Host) -> None:
    """Have production brought back at once: what runs is stopped and queued again."""
    with HostClient(options.server) as client:
        found = client.give_back(name)
    _tell(found, f"production of {name} is being brought back; `expctl host show {name}` says how far it is")


@app.command("open")
def allow_opening(
    name: Host, withdraw: Annotated[bool, typer.Option("--withdraw", help="take the permission back, if no shift has used it")] = False
) -> None:
    """Allow one shift outside the window."""
    with HostClient(options.server) as client:
        found = client.allow_opening(name, allowed=not withdraw)
    if not found["config"].get("park"):
        _tell(found, f"nothing is parked on {name}: it needs no opening")
    else:
        _tell(found, f"{name}: {found['shift_text']}")


def _tell(found: dict[str, Any], words: str) -> None:
    if options.json:
        emit(found)
    else:
        say(words)
