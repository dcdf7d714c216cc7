"""One experiment on one screen."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from expctl.views.diagnosis import shortened
from expctl.views.queue import STYLES, duration, foreseen, named, span

STEPS = ("clear", "launch", "load", "warm", "measure", "collect")


def render(item: dict[str, Any]) -> RenderableType:
    """Header, step strip, why it ended and what to do, what ran."""
    parts: list[RenderableType] = [
        Text(f"{item['id']} {named(item)} · {item['host']} · spec {item['spec_hash'][:7]} · by {item['created_by']}", "bold"),
        Text(item["status_text"], STYLES.get(item["outcome"] or "", "")),
        Text(step_strip(item)),
    ]
    if whereabouts(item):
        parts.append(Text(whereabouts(item)))
    if item["evidence"]:
        parts.append(Text(f"evidence: {shortened(item['evidence'])}"))
    if item["remedy"] and item["outcome"] in {"failed", "invalid"}:
        parts.append(Text(f"what to do: {item['remedy']}"))
    parts.append(_facts(item))
    return Group(*parts)


def whereabouts(item: dict[str, Any]) -> str:
    """Where it is and how long it goes on, such as `weights 29/64 (45 %), then CUDA graphs, about 41 min left (p90 55 min)`."""
    running = item["status"] == "running"
    return (", " if running else "; ").join(part for part in (item["where_text"], foreseen(item)) if part)


def step_strip(item: dict[str, Any]) -> str:
    """Such as `✓ clear 4s  ✓ launch 2s  ● load 12m  ○ warm`."""
    done = {step["name"]: step for step in item["steps"] if step["attempt"] == item["attempt"]}
    command = item["spec"]["engine"]["kind"] == "command"
    return "  ".join(_step(name, done.get(name), item) for name in STEPS if not command or name not in {"load", "warm"})


def _step(name: str, step: dict[str, Any] | None, item: dict[str, Any]) -> str:
    if step is None:
        return f"○ {name}"
    if step["finished_at"] is None and item["status"] == "finished":
        return f"✗ {name}"
    done = step["finished_at"] is not None
    end = datetime.fromisoformat(step["finished_at"]) if done else datetime.now(UTC)
    took = span((end - datetime.fromisoformat(step["started_at"])).total_seconds())
    return f"{'✓' if done else '●'} {name} {took}"


def _facts(item: dict[str, Any]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    evidence = {step["name"]: step["evidence"] for step in item["steps"]}
    argv = evidence.get("launch", {}).get("argv")
    rows = (
        ("submitted", item["created_at"]),
        ("time", duration(item)),
        ("attempt", str(item["attempt"])),
        ("engine", " ".join(str(item["facts"].get(key) or "") for key in ("engine", "engine_version")).strip()),
        ("command", shlex.join(argv) if argv else ""),
        ("load", json.dumps(item["facts"]["load"], ensure_ascii=False) if item["facts"].get("load") else ""),
        ("spec", json.dumps(item["spec"], ensure_ascii=False)),
    )
    for name, value in rows:
        if value:
            table.add_row(name, Text(value))
    return table
