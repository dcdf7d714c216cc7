"""expctl notify: who is told what, and what became of the messages."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from expctl.exitcodes import ExitCode
from expctl.globals import options
from expctl.moments import time_limit
from expctl.notifyclient import NotifyClient
from expctl.output import draw, emit, emit_list, say

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Who is told what: Slack and signed webhooks.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="the notifier's name")]
Delivery = Annotated[int, typer.Argument(metavar="ID", min=1, help="of a delivery, see `expctl notify deliveries`")]


@app.command()
def add(
    name: Name,
    kind: Annotated[str, typer.Option(help="slack or webhook")],
    url: Annotated[str, typer.Option(help="where messages go; Slack's incoming webhook, or an address of yours")],
    event: Annotated[list[str] | None, typer.Option(metavar="T", help="tell this kind of message only; repeatable")] = None,
    host: Annotated[list[str] | None, typer.Option(metavar="H", help="tell what happens on this host; repeatable")] = None,
    default: Annotated[bool, typer.Option("--default", help="tell what nobody else is named for")] = False,
) -> None:
    """Add a notifier. The signing secret of a webhook is printed, this one time."""
    settings = {"name": name, "kind": kind, "url": url, "events": event or [], "hosts": host or [], "default": default}
    with NotifyClient(options.server) as client:
        found = client.add_notifier(settings)
    if options.json:
        emit(found)
        return
    say(f"added {name} ({found['url']})")
    _show_secret(found)
    if not default and not host:
        say(f"it is told of experiments that name it (notify: [{kind}:{name}]) and of nothing else; --default changes that")
    say(f"next: expctl notify test {name}")


@app.command("list")
def listing() -> None:
    """Every notifier."""
    with NotifyClient(options.server) as client:
        found = client.notifiers()

    def drawn() -> None:
        from expctl.views.notifiers import table  # noqa: PLC0415 - drawing is not free

        draw(table(found), lists=True)

    nothing = "nobody is told anything; add a notifier with: expctl notify add NAME --kind slack --url URL --default"
    emit_list(found, "name", nothing, drawn)


@app.command("test")
def send_test(name: Name, timeout: Annotated[str, typer.Option(help="give up waiting after this long, such as 30s")] = "30s") -> int:
    """Send a marked test message now and show what the receiver answered; exit 1 where it did not take it."""
    from expctl.views.notifiers import tried  # noqa: PLC0415 - as above

    limit = time_limit(timeout)
    with NotifyClient(options.server) as client:
        found = client.send_test(name, limit)
    if options.json:
        emit(found)
    else:
        say(f"{name}: {tried(found)}")
    return {"delivered": ExitCode.OK, "dead": ExitCode.ERROR}.get(str(found["status"]), ExitCode.TIMED_OUT)


@app.command()
def remove(name: Name) -> None:
    """Forget a notifier and its deliveries; what is pending is not sent."""
    with NotifyClient(options.server) as client:
        found = client.remove_notifier(name)
    _tell(found, f"removed {name}" + (f"; {found['pending']} pending messages are not sent" if found["pending"] else ""))


@app.command()
def enable(name: Name) -> None:
    """Tell a disabled notifier of what happens from now on."""
    with NotifyClient(options.server) as client:
        found = client.enable_notifier(name)
    _tell(found, f"{name} is told again of what happens from now on; what is dead is sent by `expctl notify replay ID`")


@app.command()
def rotate(name: Name, finish: Annotated[bool, typer.Option("--finish", help="sign with the new secret alone")] = False) -> None:
    """Make a new signing secret, printed this one time; messages are signed with both until --finish."""
    with NotifyClient(options.server) as client:
        found = client.rotate_secret(name, finish=finish)
    if options.json:
        emit(found)
        return
    if finish:
        say(f"{name} signs with the new secret alone")
        return
    _show_secret(found)
    say(f"{name} signs with the old and the new one; once the receiver knows the new one: expctl notify rotate {name} --finish")


@app.command()
def deliveries(
    status: Annotated[str | None, typer.Option(help="pending, delivered or dead")] = None,
    notifier: Annotated[str | None, typer.Option(metavar="NAME", help="only this notifier's")] = None,
    experiment: Annotated[int | None, typer.Option(metavar="ID", min=1, help="only of this experiment")] = None,
    number: Annotated[int, typer.Option("-n", "--limit", min=1, max=500, help="how many")] = 20,
) -> None:
    """What became of the latest messages."""
    asked = {"status": status, "notifier": notifier, "experiment": experiment, "limit": number}
    with NotifyClient(options.server) as client:
        found = client.deliveries({key: value for key, value in asked.items() if value is not None})

    def drawn() -> None:
        from expctl.views.notifiers import deliveries as table  # noqa: PLC0415 - as above

        draw(table(found), lists=True)

    emit_list(found, "id", "there are none", drawn)


@app.command()
def replay(number: Delivery) -> None:
    """Send a dead or delivered message again, under the same message id."""
    with NotifyClient(options.server) as client:
        found = client.replay(number)
    _tell(found, f"delivery {number} to {found['notifier']} is sent again")


def _show_secret(found: dict[str, Any]) -> None:
    if found["secret"] is None:
        return
    say("the secret its receiver checks signatures with; it is not shown again:")
    print(found["secret"])


def _tell(found: dict[str, Any], words: str) -> None:
    if options.json:
        emit(found)
    else:
        say(words)
