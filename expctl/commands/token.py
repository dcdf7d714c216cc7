"""expctl token: make, list and revoke the tokens of a team's service."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import typer

from expctl.datafolder import Data
from expctl.globals import options
from expctl.output import emit, emit_list, say
from expctl.tokenclient import TokenClient
from service.domain.access import Scope
from service.domain.durations import seconds
from service.domain.errors import UsageError

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Make, list and revoke tokens.")

LONGEST_S = 10 * 365 * 86400.0
Local = Annotated[bool, typer.Option("--local", help="on the database of this machine's settings, without a service or a token")]
Which = Annotated[str, typer.Argument(metavar="NAME|ID", help="as `expctl token list` shows it")]


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="what it is for, such as laptop or ci")],
    owner: Annotated[str | None, typer.Option(metavar="USER", help="whom it speaks for; default: yourself")] = None,
    scope: Annotated[
        list[Scope] | None, typer.Option(help="what it may do; each includes those before it; repeatable; default: submit")
    ] = None,
    expires: Annotated[str | None, typer.Option(metavar="TIME", help="after how long it ends, such as 90d; default: never")] = None,
    local: Local = False,
    data: Data = None,
) -> None:
    """Make a token and print it, this one time. The first one is made on the server: --scope admin --local."""
    scopes = scope or [Scope.SUBMIT]
    expires_in_s = None if expires is None else _seconds(expires)
    if local:
        from expctl.localtokens import LocalTokens  # noqa: PLC0415 - heavy

        in_time = None if expires_in_s is None else timedelta(seconds=expires_in_s)
        found = LocalTokens(data).create(_name(name), owner, scopes, in_time)
    else:
        wanted = {"name": name, "owner": owner, "scopes": [str(one) for one in scopes], "expires_in_s": expires_in_s}
        with TokenClient(options.server) as client:
            found = client.create_token(wanted)
    if options.json:
        emit(found)
        return
    until = f"until {found['expires_at']}" if found["expires_at"] else "until it is revoked"
    say(f"made token {found['id']} ({name}) for {found['owner']}: {', '.join(found['scopes'])}, {until}")
    say("it is shown this one time; keep it in EXPCTL_TOKEN, or in ~/.config/expctl/token with mode 600")
    print(found["token"])


@app.command("list")
def listing(
    ended: Annotated[bool, typer.Option("--ended", help="also those that were revoked or have expired")] = False,
    local: Local = False,
    data: Data = None,
) -> None:
    """Tokens: everybody's for an admin, else one's own."""
    found = _listed(ended=ended, local=local, data=data)

    def draw() -> None:
        for one in found:
            print(_line(one))

    emit_list(found, "name", "there is no token; make one with: expctl token create NAME", draw)


def _listed(*, ended: bool, local: bool, data: Any) -> list[dict[str, Any]]:
    if local:
        from expctl.localtokens import LocalTokens  # noqa: PLC0415 - heavy

        return LocalTokens(data).tokens(ended=ended)
    with TokenClient(options.server) as client:
        return client.tokens(ended=ended)


@app.command()
def revoke(which: Which, local: Local = False, data: Data = None) -> None:
    """End a token: the next request with it is refused."""
    if local:
        from expctl.localtokens import LocalTokens  # noqa: PLC0415 - heavy

        found = LocalTokens(data).revoke(which)
    else:
        with TokenClient(options.server) as client:
            found = client.revoke_token(which)
    if options.json:
        emit(found)
    else:
        say(f"token {found['id']} ({found['name']}) of {found['owner']} is revoked")


def _line(one: dict[str, Any]) -> str:
    used = f"used {one['used_at'][:16].replace('T', ' ')}" if one["used_at"] else "never used"
    ends = f"revoked {one['revoked_at'][:10]}" if one["revoked_at"] else f"expires {one['expires_at'][:10]}" if one["expires_at"] else ""
    parts = [str(one["id"]), one["name"], one["owner"], ",".join(one["scopes"]), f"{one['prefix']}...", used, ends]
    return "  ".join(part for part in parts if part)


def _name(name: str) -> str:
    """As the API would take it."""
    if not name.strip() or not name.isprintable() or len(name) > 100:  # noqa: PLR2004 - as the message says
        raise UsageError(f"{name[:100]!r} is no name for a token", "one line of up to 100 letters is possible", "such as laptop")
    return name


def _seconds(text: str) -> float:
    try:
        found = seconds(text)
    except ValueError as error:
        raise UsageError(f"--expires {text}", str(error), "write it like 90d") from None
    if not 0 < found <= LONGEST_S:
        raise UsageError(f"--expires {text} is not possible", "more than nothing, and ten years at most", "write it like 90d")
    return found
