"""Notifiers, and what became of their messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.table import Table
from rich.text import Text

Json = dict[str, Any]

_STYLES = {"delivered": "green", "dead": "bold red", "pending": "yellow"}


def _table(*columns: str) -> Table:
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        drawn.add_column(name, overflow="fold")
    return drawn


def table(found: Iterable[Json]) -> Table:
    """Name, where it goes, what it is told, and whether something is wrong with it."""
    drawn = _table("NAME", "KIND", "URL", "TOLD", "ABOUT", "STATE")
    for one in found:
        state, style = _state(one)
        cells = (one["name"], one["kind"], one["url"], ", ".join(one["events"]) or "the usual", _about(one))
        drawn.add_row(*(Text(cell) for cell in cells), Text(state, style))
    return drawn


def _about(one: Json) -> str:
    """When it is told without being named."""
    parts = [", ".join(one["hosts"])] if one["hosts"] else ["default"] if one["default"] else []
    return "; ".join(parts) or "only where named"


def _state(one: Json) -> tuple[str, str]:
    if one["disabled_at"]:
        return f"disabled: {one['disabled_because']}", "bold red"
    parts = [f"{one['pending']} pending"] if one["pending"] else []
    parts += [f"{one['dead']} dead"] if one["dead"] else []
    parts += ["signs with two secrets"] if one["rotating"] else []
    return ", ".join(parts) or "ok", "yellow" if one["dead"] else ""


def deliveries(found: Iterable[Json]) -> Table:
    """Newest first: what was told to whom, and how that went."""
    drawn = _table("ID", "NOTIFIER", "TYPE", "STATUS", "MESSAGE")
    for one in found:
        words = one["headline"] + (f"\n{one['ended_because']}" if one["ended_because"] else "")
        status = one["status"] + (f", {one['attempts']} failed" if one["status"] == "pending" and one["attempts"] else "")
        drawn.add_row(str(one["id"]), Text(one["notifier"]), one["type"], Text(status, _STYLES.get(one["status"], "")), Text(words))
    return drawn


def tried(found: Json) -> str:
    """How the last try of a delivery went, in one line."""
    if not found["tries"]:
        return "nobody has tried it yet: is a steward running? See `expctl doctor`"
    last = found["tries"][-1]
    how = last["error"] or f"answered {last['http_status']}"
    said = " ".join(str(last["answer"]).split())[:200]
    return f"{how} after {last['seconds']:.2f} s" + (f": {said}" if said else "")
