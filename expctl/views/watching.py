"""Follow experiments: a view that redraws in a terminal, a line per change in a pipe."""

from __future__ import annotations

import sys
import time
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.text import Text

from expctl.client import Client
from expctl.globals import options
from expctl.output import console, emit_line
from expctl.views.experiment import step_strip
from expctl.views.queue import STYLES, duration

POLL_S = 0.5
UNSUCCESSFUL = 3


def follow(client: Client, ids: list[int], *, to_stderr: bool = False) -> int:
    """Follow until all have finished; 3 if one did not succeed."""
    stream = sys.stderr if to_stderr else sys.stdout
    if stream.isatty() and not options.json:
        return _redraw(client, ids, to_stderr=to_stderr)
    return _lines(client, ids, to_stderr=to_stderr)


def _finished(items: list[dict[str, Any]]) -> bool:
    return all(item["status"] == "finished" for item in items)


def _code(items: list[dict[str, Any]]) -> int:
    return 0 if all(item["outcome"] == "succeeded" for item in items) else UNSUCCESSFUL


def _redraw(client: Client, ids: list[int], *, to_stderr: bool) -> int:
    with Live(console=console(stderr=to_stderr), auto_refresh=False) as live:
        while True:
            items = [client.experiment(one) for one in ids]
            live.update(Group(*(_block(item) for item in items)), refresh=True)
            if _finished(items):
                return _code(items)
            time.sleep(POLL_S)


def _block(item: dict[str, Any]) -> Text:
    version = item["facts"].get("engine_version")
    engine = f"{item['spec']['engine']['kind']} {version}" if version else item["spec"]["engine"]["kind"]
    text = Text(f"{item['id']} {item['name']} · {engine} · spec {item['spec_hash'][:7]} · {item['host']} · {duration(item)}\n", "bold")
    text.append(f"{step_strip(item)}\n", "not bold")
    text.append(item["status_text"], STYLES.get(item["outcome"] or "", "not bold"))
    if item["where_text"] and item["status"] != "finished":
        text.append(f" · {item['where_text']}", "not bold")
    return text


def _lines(client: Client, ids: list[int], *, to_stderr: bool) -> int:
    shown: dict[int, tuple[str, str]] = {}
    while True:
        items = [client.experiment(one) for one in ids]
        for item in items:
            now = (item["status_text"], item["where_text"])
            if shown.get(item["id"]) != now:
                shown[item["id"]] = now
                _line(item, to_stderr=to_stderr)
        if _finished(items):
            return _code(items)
        time.sleep(POLL_S)


def _line(item: dict[str, Any], *, to_stderr: bool) -> None:
    if options.json and not to_stderr:
        emit_line(item)
        return
    text = f"{item['id']} {item['name']}: {item['status_text']}" + (f" · {item['where_text']}" if item["where_text"] else "")
    print(text, file=sys.stderr if to_stderr else sys.stdout, flush=True)
