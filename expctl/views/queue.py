"""The queue as a table, and the night in one line."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

STYLES = {"succeeded": "green", "failed": "red", "invalid": "red", "cancelled": "dim"}
DAY_S = 24 * 3600
NARROW = 60
"""Columns below which the table's own would be a few letters wide."""


def drawn(items: list[dict[str, Any]], width: int) -> RenderableType:
    """A table, or where it would leave no room for words a few lines for each experiment."""
    return table(items) if width >= NARROW else Group(*(_lines(item) for item in items))


def _lines(item: dict[str, Any]) -> Text:
    text = Text(f"{item['id']}  {item['name']}\n", "bold", overflow="fold")
    text.append(item["status_text"], _style(item) or "not bold")
    rest = " · ".join(part for part in (item["where_text"], item["host"], duration(item), foreseen(item)) if part != "-" and part)
    return text.append(f" · {rest}", "not bold")


def _style(item: dict[str, Any]) -> str:
    return STYLES.get(item["outcome"] or "", "bold" if item["status"] == "running" else "")


def table(items: list[dict[str, Any]]) -> Table:
    """ID, name, host, status, why or where, time, and when it has ended."""
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (
        ("ID", "right"),
        ("NAME", "left"),
        ("HOST", "left"),
        ("STATUS", "left"),
        ("WHY / WHERE", "left"),
        ("TIME", "right"),
        ("ETA", "right"),
    ):
        drawn.add_column(name, justify=justify, overflow="fold", no_wrap=name in {"ID", "TIME", "ETA"})  # type: ignore[arg-type]
    for item in items:
        style = _style(item)
        # Text, not str: a name may hold what rich takes for markup.
        words = (Text(item["name"]), Text(item["host"]), Text(item["status_text"], style), Text(item["where_text"]))
        cells = (str(item["id"]), *words, duration(item), eta(item))
        drawn.add_row(*cells)
    return drawn


def duration(item: dict[str, Any]) -> str:
    """How long it ran, or has run; `-` before it began."""
    if not item["started_at"]:
        return "-"
    start = datetime.fromisoformat(item["started_at"])
    end = datetime.fromisoformat(item["finished_at"]) if item["finished_at"] else datetime.now(UTC)
    return span((end - start).total_seconds())


def eta(item: dict[str, Any]) -> str:
    """When it is foreseen to have ended, by the reader's clock, such as `02:06` or `01 Dec 02:06`; `-` where nothing is known."""
    if not item.get("eta"):
        return "-"
    moment = datetime.fromisoformat(item["eta"]).astimezone()
    far = abs((moment - datetime.now(UTC)).total_seconds()) >= DAY_S
    return f"{moment:%d %b %H:%M}" if far else f"{moment:%H:%M}"


def foreseen(item: dict[str, Any]) -> str:
    """When it runs, in words; empty for what neither runs nor waits."""
    return str(item.get("eta_text") or "")


def nights(hosts: list[dict[str, Any]]) -> list[str]:
    """Each host's night against its window, such as `gpu-01, the night: 5 of 7 fit before 07:20`."""
    return [f"{host['name']}, {host['night_text']}" for host in hosts if host.get("night_text")]


def span(seconds: float) -> str:
    """Such as `41s`, `6m`, `1h05m`."""
    whole = max(0, round(seconds))
    if whole < 100:  # noqa: PLR2004 - two digits of seconds read well
        return f"{whole}s"
    minutes = whole // 60
    return f"{minutes}m" if minutes < 100 else f"{minutes // 60}h{minutes % 60:02d}m"  # noqa: PLR2004 - as above


def summary(items: list[dict[str, Any]], hosts: list[dict[str, Any]]) -> str:
    """Such as `5 shown: 1 running, 4 succeeded · local busy`."""
    counts = Counter(item["outcome"] or item["status"] for item in items)
    parts = ", ".join(f"{count} {word}" for word, count in counts.most_common())
    places = ", ".join(f"{host['name']} {_host_state(host)}" for host in hosts)
    return f"{len(items)} shown: {parts}" + (f" · {places}" if places else "")


def _host_state(host: dict[str, Any]) -> str:
    if host["blocked"]:
        return f"blocked: {host['blocked']}"
    state = "busy" if host["busy"] else "silent: its worker is gone" if host["worker_silent"] else "idle"
    return state + (" (simulated)" if host["simulated"] else "")
