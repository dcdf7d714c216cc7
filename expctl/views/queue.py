"""The queue as a table, and the night in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

STYLES = {"succeeded": "green", "failed": "red", "invalid": "red", "cancelled": "dim"}
DAY_S = 24 * 3600
NARROW = 60
"""Columns below which the table's own would be a few letters wide."""
ROOMY = 110
"""Columns from which names and states are rarely folded."""
NAME_W, STATUS_W, HOST_W = {True: 40, False: 22}, {True: 22, False: 10}, 12


class Row(NamedTuple):
    """One experiment as a line: the same columns everywhere."""

    id: str
    name: str
    host: str
    status: str
    why: str
    time: str
    eta: str
    foreseen: str
    style: str
    why_style: str = ""


def row_of(item: dict[str, Any], *, brief: bool = False) -> Row:
    """The columns of an experiment. What comes behind a colon in its status is the why; `brief` says no more than that."""
    status, _, cause = item["status_text"].partition(": ")
    why = cause if cause and brief else ": ".join(part for part in (cause, item["where_text"]) if part)
    return Row(str(item["id"]), named(item), item["host"], status, why, duration(item), eta(item), foreseen(item), _style(item))


def drawn(items: Sequence[dict[str, Any]], width: int) -> RenderableType:
    """A table, or where it would leave no room for words a few lines for each experiment."""
    return drawn_rows([row_of(item) for item in items], width)


def drawn_rows(rows: Sequence[Row], width: int, *, several: bool = True, gap: int = 0) -> RenderableType:
    """The same of rows; an empty line stands before the row of number `gap`. `several`: hosts, so that each is named."""
    if width >= NARROW:
        return _table(rows, several=several, gap=gap, roomy=width >= ROOMY)
    return Group(*(_lines(row) for row in rows))


def _lines(row: Row) -> Text:
    text = Text(f"{row.id}  {row.name}\n", "bold", overflow="fold")
    text.append(row.status, row.style or "not bold")
    rest = " · ".join(part for part in (row.why, row.host, row.time, row.foreseen) if part != "-" and part)
    return text.append(f" · {rest}", "not bold")


def _style(item: dict[str, Any]) -> str:
    return STYLES.get(item["outcome"] or "", "bold" if item["status"] == "running" else "")


def table(items: Sequence[dict[str, Any]]) -> Table:
    """ID, name, host, status, why or where, time, and when it has ended."""
    return _table([row_of(item) for item in items])


def _table(rows: Sequence[Row], *, several: bool = True, gap: int = 0, roomy: bool = True) -> Table:
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    drawn.add_column("ID", justify="right", no_wrap=True)
    # What does not fit is folded in the column of reasons first, and in the others only as far as a reader would not mind.
    words_column(drawn, "NAME", [row.name for row in rows], NAME_W[roomy])
    if several:
        words_column(drawn, "HOST", [row.host for row in rows], HOST_W)
    words_column(drawn, "STATUS", [row.status for row in rows], STATUS_W[roomy])
    drawn.add_column("WHY / WHERE", overflow="fold")
    for name in ("TIME", "ETA"):
        drawn.add_column(name, justify="right", no_wrap=True)
    for number, row in enumerate(rows):
        if number == gap > 0:
            drawn.add_row()
        # Text, not str: a name may hold what rich takes for markup.
        words = [Text(row.name), *([Text(row.host)] if several else []), Text(row.status, row.style), Text(row.why, row.why_style)]
        drawn.add_row(row.id, *words, row.time, row.eta)
    return drawn


def words_column(table: Table, name: str, cells: Sequence[str], widest: int) -> None:
    """A column as wide as its words, but for longer ones."""
    fits = max([len(name), *map(len, cells)]) <= widest
    table.add_column(name, overflow="fold", no_wrap=fits, max_width=widest)


def named(item: dict[str, Any]) -> str:
    """An experiment's name, and which of several loads of its configuration it is."""
    label = item.get("load_text")
    return f"{item['name']} ({label})" if label else str(item["name"])


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


def span(seconds: float) -> str:
    """Such as `41s`, `6m`, `1h05m`."""
    whole = max(0, round(seconds))
    if whole < 100:  # noqa: PLR2004 - two digits of seconds read well
        return f"{whole}s"
    minutes = whole // 60
    return f"{minutes}m" if minutes < 100 else f"{minutes // 60}h{minutes % 60:02d}m"  # noqa: PLR2004 - as above


def summary(items: Sequence[dict[str, Any]], hosts: Sequence[dict[str, Any]]) -> str:
    """Such as `5 shown: 1 running, 4 succeeded · local busy`."""
    counts = Counter(item["outcome"] or item["status"] for item in items)
    parts = ", ".join(f"{count} {word}" for word, count in counts.most_common())
    places = ", ".join(f"{host['name']} {host_state(host)}" for host in hosts)
    return f"{len(items)} shown: {parts}" + (f" · {places}" if places else "")


def host_state(host: dict[str, Any]) -> str:
    """In a few words, such as `busy`, `idle (simulated)`."""
    if host["blocked"]:
        return f"blocked: {host['blocked']}"
    state = "busy" if host["busy"] else "silent: its worker is gone" if host["worker_silent"] else "idle"
    return state + (" (simulated)" if host["simulated"] else "")
