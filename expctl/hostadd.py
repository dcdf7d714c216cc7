"""`expctl host add`: from options to the settings of a host."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import typer

from expctl.globals import options
from expctl.hostclient import HostClient
from expctl.output import emit, say
from service.domain.errors import UsageError

NONE = "none"
"""Written for a value: back to the default."""

Host = Annotated[str, typer.Argument(metavar="NAME", help="the host's name")]


def add(
    name: Host,
    ssh: Annotated[str | None, typer.Option(metavar="DEST", help="user@host, user@host:port or an alias; without it: this machine")] = None,
    park: Annotated[
        list[str] | None, typer.Option(metavar="UNIT", help="production: a unit to stop and bring back; may be repeated")
    ] = None,
    window: Annotated[str | None, typer.Option(help="when production may be parked, such as 20:00-08:00")] = None,
    time_zone: Annotated[str | None, typer.Option(help="of the window, such as Europe/Berlin; UTC unless given")] = None,
    engine_address: Annotated[str | None, typer.Option(metavar="URL", help="where engines are reached, without a port")] = None,
    production_address: Annotated[str | None, typer.Option(metavar="URL", help="where production answers, with its port")] = None,
    production_api_key: Annotated[
        str | None, typer.Option(help="a reference such as env:VLLM_API_KEY, in the worker's environment")
    ] = None,
    experiment_port: Annotated[int | None, typer.Option(help="port that engines are started on", min=1, max=65535)] = None,
    executable: Annotated[list[str] | None, typer.Option(metavar="KIND=PATH", help="such as vllm=/opt/vllm/bin/vllm; repeatable")] = None,
    run_as: Annotated[str | None, typer.Option(metavar="USER", help="who runs experiments; else production's user")] = None,
    close_after: Annotated[str | None, typer.Option(help="give production back after so long without work; 10m unless given")] = None,
    dead_man: Annotated[str | None, typer.Option(help="the host brings production back without us after; 30m unless given")] = None,
    restore_timeout: Annotated[str | None, typer.Option(help="how long production may take to serve again; 3h unless given")] = None,
    nvidia_smi: Annotated[str | None, typer.Option(metavar="PATH", help="the GPU tool on the host")] = None,
    before_park: Annotated[str | None, typer.Option(metavar="CMD", help="run where the worker runs, before production stops")] = None,
    after_restore: Annotated[str | None, typer.Option(metavar="CMD", help="the same, once production serves again")] = None,
    units: Annotated[str | None, typer.Option(help="who keeps the units: systemd or process")] = None,
) -> None:
    """Add a host, or change those settings of a known one that are given; `none` sets one back to its default."""
    plain = {
        "ssh": ssh, "window": window, "time_zone": time_zone, "engine_address": engine_address, "production_address": production_address,
        "production_api_key": production_api_key, "experiment_port": experiment_port, "run_as": run_as, "close_after": close_after,
        "dead_man": dead_man, "restore_timeout": restore_timeout, "nvidia_smi": nvidia_smi, "units": units,
    }  # fmt: skip
    hooks = {"before_park": before_park, "after_restore": after_restore}
    settings = settings_of(plain, park or [], executable or [], hooks)
    with HostClient(options.server) as client:
        known = {host["name"] for host in client.hosts()}
        found = client.save_host({"name": name} | settings)
    if options.json:
        emit(found)
        return
    say(f"{'changed' if name in known else 'added'} {name}: {found['shift_text'] or 'nothing is parked there'}")
    if found["window"] and not time_zone:
        say(f"its window is meant in {found['window']['time_zone']}; --time-zone changes that")
    if name not in known:
        say(f"next: expctl host check {name}      (`expctl up` has started its worker; a team's service: expctl worker --host {name})")


def settings_of(plain: dict[str, Any], park: list[str], executables: list[str], hooks: dict[str, str | None]) -> dict[str, Any]:
    """What to send: only what was given."""
    settings = {key: None if value == NONE else value for key, value in plain.items() if value is not None}
    if park:
        settings["park"] = None if park == [NONE] else park
    if executables:
        settings["executables"] = dict(_pair(one) for one in executables)
    given = {key: None if command == NONE else _words(key, command) for key, command in hooks.items() if command is not None}
    if given:
        settings["hooks"] = given
    if (settings.get("ssh") or settings.get("park")) and "units" not in settings:
        settings["units"] = "systemd"  # nothing else is possible there
    return settings


def _pair(text: str) -> tuple[str, str | None]:
    kind, equals, path = text.partition("=")
    if not (kind and equals and path):
        raise UsageError(f"--executable {text}", "it names no kind of engine, or no program", "write it like vllm=/opt/vllm/bin/vllm")
    return kind, None if path == NONE else path


def _words(key: str, command: str) -> list[str]:
    """A command as a shell would split it; no shell runs it."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--{key.replace('_', '-')} {command}", str(error), "mind the quotes") from None
    if not words:
        raise UsageError(f"--{key.replace('_', '-')} is empty", "", f"write a command, or {NONE}")
    return words
