"""`expctl host check`, `trust`, `install`, `rehearse`: what the host's worker does and answers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from expctl.exitcodes import ExitCode
from expctl.globals import options
from expctl.hostadd import Host
from expctl.hostclient import HostClient, TimeIsUp
from expctl.moments import time_limit
from expctl.output import console, emit, say
from service.domain.errors import Conflict, ExpctlError, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

Json = dict[str, Any]
Timeout = Annotated[str, typer.Option(help="give up after this long, such as 90s or 2h")]
Yes = Annotated[bool, typer.Option("--yes", help="do not ask")]


def check(name: Host, timeout: Timeout = "5m") -> int:
    """Prove SSH, helper, systemd, GPUs, ports, engine address and disk; exit 1 where one is wrong, with its remedy."""
    from expctl.views import hosts as views  # noqa: PLC0415 - drawing is not free

    return _asked(name, "check", None, timeout, views.checks)


def rehearse(name: Host, yes: Yes = False, timeout: Timeout = "6h") -> int:
    """Park production, bring it back, and measure both. Production does not serve meanwhile."""
    from expctl.views import hosts as views  # noqa: PLC0415 - as above

    if sys.stdin.isatty() and not yes and not options.json:
        typer.confirm(f"This stops production on {name} and brings it back. Now?", abort=True, err=True)
    return _asked(name, "rehearse", None, timeout, views.rehearsal)


def install(
    name: Host,
    apply: Annotated[bool, typer.Option("--apply", help="let the worker do it, where it logs in as root")] = False,
    user: Annotated[str | None, typer.Option(metavar="USER", help="who is to call the helper; else whom the worker logs in as")] = None,
    file: Annotated[bool, typer.Option("--file", help="print the helper file and nothing else")] = False,
    timeout: Timeout = "5m",
) -> int:
    """Show the helper that an admin installs, its settings and the one line of sudoers; nothing is done unless --apply says so."""
    from expctl.views import hosts as views  # noqa: PLC0415 - as above

    if apply and file:
        raise UsageError("--apply and --file exclude each other", "one installs the helper, the other only prints it", "give one of them")
    args = {"apply": apply, "user": user}
    if file and not options.json:
        return _asked(name, "install", args, timeout, None, "text")
    code = _asked(name, "install", args, timeout, views.installation)
    if not apply:
        say(f"nothing was done; the whole file: expctl host install {name} --file")
    return code


def trust(
    name: Host,
    fingerprint: Annotated[list[str] | None, typer.Option(help="pin the key with this fingerprint and no other; repeatable")] = None,
    yes: Yes = False,
    timeout: Timeout = "2m",
) -> int:
    """Show the keys of the host as the worker sees them, and pin them once somebody has said that they are right."""
    from expctl.views import hosts as views  # noqa: PLC0415 - as above

    with HostClient(options.server) as client:
        shown = _answer(client, name, "trust", {}, timeout)
        if shown is None:
            return ExitCode.TIMED_OUT
        if not shown["ok"]:
            return _tell(shown, views.keys)
        keys = shown["answer"]["keys"]
        ask = not (options.json or yes or fingerprint)
        if not options.json:
            console(stderr=True).print(views.keys(shown["answer"]))
        wanted = chosen(name, keys, fingerprint or [], yes=yes)
        if not wanted or (ask and not _agreed(name)):
            return _tell_untouched(shown, keys)
        pinned = _answer(client, name, "trust", {"pin": wanted}, timeout)
    return ExitCode.TIMED_OUT if pinned is None else _tell(pinned, views.keys)


def chosen(name: str, keys: list[Json], fingerprints: list[str], *, yes: bool) -> list[str]:
    """The fingerprints to pin; empty where all are pinned, or where nobody could say yes to them."""
    wanted = ["SHA256:" + one.removeprefix("SHA256:").rstrip("=") for one in fingerprints]
    there = [key["fingerprint"] for key in keys]
    strange = [one for one in wanted if one not in there]
    if strange:
        seen = ", ".join(there) or "none at all"
        raise Conflict(f"{name} shows no key with the fingerprint {strange[0]}", f"it shows {seen}", "nothing was pinned; find out why")
    if wanted:
        return wanted
    new = [key for key in keys if key["known"] != "pinned"]
    if any(key["known"] == "changed" for key in new):
        todo = f"compare it on the host itself, and then: expctl host trust {name} --fingerprint SHA256:..."
        raise Conflict(f"the key of {name} is not the one that is pinned", "it was installed anew, or somebody stands in between", todo)
    if new and not yes and not options.json and not sys.stdin.isatty():
        raise UsageError("nothing was pinned", "nobody is there to say that the keys are right", "give --fingerprint, or --yes")
    return [key["fingerprint"] for key in new] if not options.json or yes else []


def _agreed(name: str) -> bool:
    return typer.confirm(f"Are these the keys of {name}? Pin them?", err=True)


def _tell_untouched(shown: Json, keys: list[Json]) -> int:
    done = bool(keys) and all(key["known"] == "pinned" for key in keys)
    if options.json:
        emit(shown)
    else:
        say("all of them are pinned already" if done else "nothing was pinned")
    return 0 if done else ExitCode.ERROR


def _asked(
    name: str, kind: str, args: Json | None, timeout: str, draw: Callable[[Json], RenderableType] | None, plain: str | None = None
) -> int:
    """Ask, wait, and show the answer: drawn, or one text of it just as it is."""
    with HostClient(options.server) as client:
        found = _answer(client, name, kind, args, timeout)
    return ExitCode.TIMED_OUT if found is None else _tell(found, draw, plain)


def _answer(client: HostClient, name: str, kind: str, args: Json | None, timeout: str) -> Json | None:
    limit = time_limit(timeout)
    try:
        return client.answer_of(name, kind, args, limit)
    except TimeIsUp:
        say("the time is up")
        return None


def _tell(found: Json, draw: Callable[[Json], RenderableType] | None, plain: str | None = None) -> int:
    answer = found["answer"]
    if options.json:
        emit(found)
    elif answer.get("error"):
        raise ExpctlError(str(answer["error"]), "", str(answer.get("remedy") or ""))
    elif plain is not None:
        sys.stdout.write(str(answer[plain]))
    elif draw is not None:
        from rich.text import Text  # noqa: PLC0415 - drawing is not free

        drawn = draw(answer)
        # Only what has columns is fitted to the screen: a command that is broken in two would be pasted as two.
        console().print(drawn, soft_wrap=isinstance(drawn, Text))
    return 0 if found["ok"] else ExitCode.ERROR
