"""How the night is going, in one screen: what a person has to look at, hosts, what runs and waits, what ended and what it is worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from expctl.views.queue import NARROW, ROOMY, Row, drawn_rows, host_state, row_of

Json = dict[str, Any]

VERDICT_STYLES = {"better": "green", "worse": "red"}
_WORDS = {"succeeded": "done", "failed": "failed", "invalid": "invalid", "cancelled": "cancelled"}
_OPEN = {"running": "running", "stopping": "stopping", "queued": "waiting", "held": "held"}


def render(night: Json, width: int) -> RenderableType:
    """From the API's answer about a night."""
    parts: list[RenderableType] = [Text(headline(night), "bold", overflow="fold")]
    parts += [Text(line, "bold red", overflow="fold") for line in alarms(night["hosts"])]
    if found := best(night):
        parts.append(Text(found, "green", overflow="fold"))
    parts += [Text(), hosts(night["hosts"], width)]
    several = len(night["hosts"]) > 1
    brief = width < ROOMY
    rows = [row_of(item, brief=brief) for item in night["open"]] + [_ended(one, brief=brief) for one in night["ended"]]
    if rows:
        parts += [Text(), drawn_rows(rows, width, several=several, gap=len(night["open"]))]
    parts += [Text(line, "dim", overflow="fold") for line in _left_out(night)]
    return Group(*parts)


def headline(night: Json) -> str:
    """Such as `Since 18:00: 1 running, 2 waiting, 3 done, 1 failed`."""
    parts = [f"{night['counts'][key]} {word}" for key, word in _OPEN.items() if night["counts"].get(key)]
    parts += [f"{night['outcomes'][key]} {word}" for key, word in _WORDS.items() if night["outcomes"].get(key)]
    return f"Since {since(night['since'])}: {', '.join(parts) or 'nothing ended, and nothing waits'}"


def since(text: str) -> str:
    """A beginning by the reader's clock, with the date where it is not today."""
    moment = datetime.fromisoformat(text).astimezone()
    today = datetime.now(UTC).astimezone().date()
    return f"{moment:%H:%M}" if moment.date() == today else f"{moment.day} {moment:%b %H:%M}"


def alarms(found: Sequence[Json]) -> Iterator[str]:
    """What a person has to look at; nothing else."""
    for host in found:
        if host["needs_person"]:
            yield f"{host['name']}: {host['shift_text']}"
        if host["blocked"]:
            yield f"{host['name']} is blocked: {host['blocked']}"
        elif host["worker_silent"]:
            yield f"{host['name']}: its worker is gone; start `expctl worker --host {host['name']}`"


def best(night: Json) -> str:
    """The largest gain that is shown; empty where there is none."""
    gains = [one for one in night["ended"] if (one["versus"] or {}).get("verdict") == "better"]
    if not gains:
        return ""
    top = max(gains, key=lambda one: one["versus"]["tps_ratio"] or 0.0)
    return f"Best: {top['experiment']['id']} {top['experiment']['name']}, {verdict(top).removeprefix('better, ')}"


def hosts(found: Sequence[Json], width: int) -> RenderableType:
    """A line a host: whether it works, what production does, and how much of the night is left."""
    if width < NARROW:
        return Group(*(Text(": ".join(part for part in (f"{host['name']} {host_state(host)}", _told(host)) if part)) for host in found))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("HOST", "STATE", "PRODUCTION AND WINDOW"):
        table.add_column(name, overflow="fold", no_wrap=name != "PRODUCTION AND WINDOW")
    for host in found:
        style = "bold red" if host["needs_person"] or host["blocked"] or host["worker_silent"] else ""
        table.add_row(Text(host["name"]), Text(_brief(host), style), Text(_told(host) or "-", style))
    return table


def _brief(host: Json) -> str:
    """In a word: what blocks it stands above already."""
    paused = ", paused" if host["paused"] else ""
    return ("blocked" if host["blocked"] else "silent" if host["worker_silent"] else host_state(host)) + paused


def _told(host: Json) -> str:
    return " · ".join(part for part in (host["shift_text"], host.get("night_text")) if part)


def _ended(one: Json, *, brief: bool) -> Row:
    row = row_of(one["experiment"], brief=brief)
    if one["experiment"]["outcome"] != "succeeded":
        return row
    return row._replace(why=verdict(one, brief=brief), why_style=VERDICT_STYLES.get((one["versus"] or {}).get("verdict", ""), ""))


def verdict(one: Mapping[str, Any], *, brief: bool = False) -> str:
    """Such as `better, +43.3 % tok/s vs 41 (+37.5 % to +49.4 %)`; the speed where there is nothing to compare with.

    `brief` leaves out what a narrow screen has no room for.
    """
    versus = one["versus"]
    if versus is None:
        return "; ".join(part for part in (speed(one["tps"]), one["not_compared"]) if part)
    base, ratio = versus["baseline"], versus["tps_ratio"]
    if versus["verdict"] == "not_comparable":
        return f"not comparable with {base}"
    if versus["verdict"] == "invalid" or ratio is None:
        return f"no verdict vs {base}"
    if versus["verdict"] == "no_difference_shown":
        if brief:
            return f"no difference shown vs {base}"
        return f"no difference shown vs {base} ({change(ratio)} tok/s measured)"
    span = f" ({change(versus['ci95'][0])} to {change(versus['ci95'][1])})" if versus["ci95"] else ""
    return f"{versus['verdict']}, {change(ratio)} vs {base}" if brief else f"{versus['verdict']}, {change(ratio)} tok/s vs {base}{span}"


def change(ratio: float) -> str:
    """Such as `+43.3 %`, of candidate over baseline."""
    return f"{(ratio - 1) * 100 + 0.0:+.1f} %"


def speed(tps: float | None) -> str:
    """Such as `62.6 tok/s`, `2 604 tok/s`; empty where it is not known."""
    if tps is None:
        return ""
    return f"{tps:,.0f} tok/s".replace(",", "\N{NO-BREAK SPACE}") if tps >= 1000 else f"{tps:.1f} tok/s"  # noqa: PLR2004 - as everywhere


def _left_out(night: Json) -> Iterator[str]:
    waiting = sum(night["counts"].values()) - len(night["open"])
    if waiting > 0:
        yield f"{waiting} more wait: expctl queue -n {min(200, waiting + len(night['open']))}"
    more = sum(night["outcomes"].values()) - len(night["ended"])
    if more > 0:
        yield f"{more} more ended: expctl report"
