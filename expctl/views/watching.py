"""Follow experiments: a view that redraws in a terminal, a line per change in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.text import Text

from expctl.client import PATIENCE_S, Client
from expctl.exitcodes import ExitCode
from expctl.globals import options
from expctl.output import console, emit_line
from expctl.views.experiment import step_strip, whereabouts
from expctl.views.queue import STYLES, duration
from expctl.views.ticking import Ticking

TICKS_PER_S = 1


def follow(client: Client, ids: list[int], *, to_stderr: bool = False) -> int:
    """Follow until all have finished; 3 if one did not succeed."""
    client.patience_s = PATIENCE_S
    stream = sys.stderr if to_stderr else sys.stdout
    # Without colour there are no escapes at all, and redrawing needs some.
    if stream.isatty() and not options.json and options.color is not False:
        return _redraw(client, ids, to_stderr=to_stderr)
    return _lines(client, ids, to_stderr=to_stderr)


def _finished(items: list[dict[str, Any]]) -> bool:
    return all(item["status"] == "finished" for item in items)


def _code(items: list[dict[str, Any]]) -> int:
    return 0 if all(item["outcome"] == "succeeded" for item in items) else ExitCode.UNSUCCESSFUL


def _redraw(client: Client, ids: list[int], *, to_stderr: bool) -> int:
    ticking = Ticking()

    def drawn() -> Group:
        return Group(*(_block(item) for item in ticking.now()))

    # Between two events it redraws from what it knows, and asks nobody.
    with Live(console=console(stderr=to_stderr), get_renderable=drawn, refresh_per_second=TICKS_PER_S) as live:
        for items in _changes(client, ids):
            ticking.tell(items)
            live.refresh()
            if _finished(items):
                return _code(items)
    return 0


def _changes(client: Client, ids: list[int]) -> Iterator[list[dict[str, Any]]]:
    """The experiments now, and again whenever something happened to one of them."""
    items = {one: client.experiment(one) for one in ids}
    yield list(items.values())
    params = {"after": _last_event(client, ids)} | ({"experiment_id": ids[0]} if len(ids) == 1 else {})
    for one in ids:
        items[one] = client.experiment(one)
    yield list(items.values())
    for _, event in client.stream("/v1/events", params):
        one = event["experiment_id"]
        if one in items:
            items[one] = client.experiment(one)
            yield list(items.values())


def _last_event(client: Client, ids: list[int]) -> int:
    """Where to go on from: what happened until now is in the experiments themselves."""
    latest = 0
    for one in ids:
        after = 0
        while found := client.events(one, after):
            after = found[-1]["id"]
        latest = max(latest, after)
    return latest


def _block(item: dict[str, Any]) -> Text:
    version = item["facts"].get("engine_version")
    engine = f"{item['spec']['engine']['kind']} {version}" if version else item["spec"]["engine"]["kind"]
    text = Text(f"{item['id']} {item['name']} · {engine} · spec {item['spec_hash'][:7]} · {item['host']} · {duration(item)}\n", "bold")
    text.append(f"{step_strip(item)}\n", "not bold")
    text.append(item["status_text"], STYLES.get(item["outcome"] or "", "not bold"))
    if whereabouts(item) and item["status"] != "finished":
        text.append(f" · {whereabouts(item)}", "not bold")
    return text


def _lines(client: Client, ids: list[int], *, to_stderr: bool) -> int:
    shown: dict[int, tuple[str, str]] = {}
    for items in _changes(client, ids):
        for item in items:
            now = (item["status_text"], item["where_text"])
            if shown.get(item["id"]) != now:
                shown[item["id"]] = now
                _line(item, to_stderr=to_stderr)
        if _finished(items):
            return _code(items)
    return 0


def _line(item: dict[str, Any], *, to_stderr: bool) -> None:
    if options.json and not to_stderr:
        emit_line(item)
        return
    text = f"{item['id']} {item['name']}: {item['status_text']}" + (f" · {whereabouts(item)}" if whereabouts(item) else "")
    print(text, file=sys.stderr if to_stderr else sys.stdout, flush=True)
