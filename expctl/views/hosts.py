"""Hosts, and what their workers answered."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from expctl.views.queue import span

Json = dict[str, Any]

DURATIONS = ("close_after", "dead_man", "restore_timeout")
SIGNS = {True: ("ok", "green"), False: ("WRONG", "bold red"), None: ("unknown", "yellow")}


def _urgent(host: Json) -> str:
    return "bold red" if host["needs_person"] else ""


def _table(*columns: str) -> Table:
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        drawn.add_column(name, overflow="fold")
    return drawn


def table(hosts: Sequence[Json]) -> Table:
    """Name, how it is reached, what serves by day, when that may be parked, and how it is."""
    drawn = _table("NAME", "REACHED BY", "PRODUCTION", "WINDOW", "STATE")
    for host in hosts:
        config = host["config"]
        cells = (
            Text(host["name"]),
            Text(f"ssh {config['ssh']}" if config.get("ssh") else "this machine"),
            Text(", ".join(config.get("park") or ()) or "-"),
            Text(f"{config['window']} {config.get('time_zone', '')}" if config.get("window") else "-"),
            Text(_state(host), _urgent(host)),
        )
        drawn.add_row(*cells)
    return drawn


def _state(host: Json) -> str:
    worker = "its worker is gone" if host["worker_silent"] else "busy" if host["busy"] else "idle"
    parts = (
        f"blocked: {host['blocked']}" if host["blocked"] else "",
        "paused" if host["paused"] else "",
        host["shift_text"],
        worker,
        "simulated" if host["simulated"] else "",
    )
    return "; ".join(part for part in parts if part)


TROUBLE = ("not_parked", "not_clean", "host_rebooted", "given_back_by_host", "after_restore")
"""What a shift notes in words where parking or giving back did not go as it should; the rest of its notes stand in `--json`."""


def detail(host: Json) -> RenderableType:
    """Everything about one host."""
    rows = _table("", "")
    rows.show_header = False
    for name, value in _facts(host):
        rows.add_row(name, Text(value))
    head = Text(f"{host['name']} · {_state(host)}", _urgent(host) or "bold")
    report = host["report"]
    if not report:
        return Group(head, rows, Text(f"never checked: expctl host check {host['name']}"))
    return Group(head, rows, Text(f"checked {_moment(report['at'])}"), checks(report))


def _facts(host: Json) -> Iterable[tuple[str, str]]:
    window, shift = host["window"], host["shift"]
    if window:
        state = f"open until {_moment(window['closes_at'])}" if window["open"] else f"opens {_moment(window['next_opening'])}"
        yield "window", f"{window['window']} {window['time_zone']}, {state}"
    if shift:
        yield "shift", f"{shift['phase']} since {_moment(shift['opened_at'])}" + (f", ends: {shift['closing']}" if shift["closing"] else "")
        yield "units", ", ".join(shift["units"]) or "-"
        yield "due back", _moment(shift["due_back"]) if shift["due_back"] else "-"
        yield from ((key.replace("_", " "), str(shift["parked"][key])) for key in TROUBLE if shift["parked"].get(key))
    for key, text in (("open_by", "opened by"), ("give_back_by", "give back for"), ("unreachable_since", "unreachable since")):
        if host[key]:
            yield text, _moment(host[key]) if key == "unreachable_since" else str(host[key])
    yield "worker", host["worker"] or "none just now"
    for key, value in host["config"].items():
        if value and key not in {"window", "time_zone", "hooks", *DURATIONS}:
            yield key, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        elif key in DURATIONS:
            yield key, span(value)
    for key in ("before_park", "after_restore"):
        if command := (host["config"].get("hooks") or {}).get(key):
            yield key, shlex.join(command)


def _moment(text: str) -> str:
    return f"{datetime.fromisoformat(text):%d %b %H:%M %Z}".replace("UTC+00:00", "UTC")


def checks(answer: Json) -> Table:
    """Each check with ok, WRONG or unknown, what was found, and its remedy."""
    drawn = _table("CHECK", "", "FOUND")
    for one in answer.get("checks", ()):
        word, style = SIGNS[one["ok"]]
        found = Text(str(one.get("found") or ""))
        if one["ok"] is not True and one.get("remedy"):
            found.append(f"\n{one['remedy']}", "bold")
        drawn.add_row(Text(one["name"]), Text(word, style), found)
    return drawn


def keys(answer: Json) -> Table:
    """The keys that a host shows, and whether they are trusted."""
    drawn = _table("HOST", "TYPE", "FINGERPRINT", "")
    for one in answer.get("keys", ()):
        style = {"pinned": "green", "changed": "bold red"}.get(one["known"], "yellow")
        drawn.add_row(Text(one["host"]), Text(one["type"]), Text(one["fingerprint"]), Text(one["known"], style))
    return drawn


def rehearsal(answer: Json) -> RenderableType:
    """Each step with its time, and for how long production did not serve."""
    drawn = _table("STEP", "TIME", "")
    for one in answer.get("steps", ()):
        took = "-" if one["seconds"] is None else span(one["seconds"])
        drawn.add_row(Text(one["name"]), took, Text(str(one.get("detail") or "")))
    down = answer.get("downtime_s")
    return Group(drawn, Text("production did not serve for " + (span(down) if down is not None else "an unknown time")))


def installation(answer: Json) -> Text:
    """What lies on the host, or what an admin runs there."""
    if answer.get("installed"):
        return Text(f"installed {answer['path']}, sha256 {answer['sha256']}")
    commands = "\n".join(one if isinstance(one, str) else shlex.join(one) for one in answer["commands"])
    parts = [
        ("the helper", f"{answer['path']}  sha256 {answer['sha256']}"),
        ("its settings", json.dumps(answer["config"], ensure_ascii=False)),
        ("the one line of sudoers", answer["sudoers"]),
        ("what an admin does", f"\n{commands}"),
    ]
    return Text("\n").join(Text(f"{title}: ", "bold").append(value, "not bold") for title, value in parts if value)
