"""Other tools' results side by side: a row a run, each figure beside the first file's under the same load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from expctl.views.fitting import Fitting
from service.domain.definitions import DEFINITIONS

UNKNOWN = "-"
_FIGURES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("TTFT ms", ("ttft_ms", "mean")),
    ("TTFT p99", ("ttft_ms", "p99")),
    ("TPOT ms", ("tpot_ms", "mean")),
    ("TPOT p99", ("tpot_ms", "p99")),
    ("tok/s", ("tps", "mean")),
    ("together tok/s", ("output_tps",)),
)
"""What is shown of a summary, and where it stands."""


def render(found: Sequence[Mapping[str, Any]]) -> RenderableType:
    """A table, the definitions it goes by, and each file's notes."""
    rows = [(one, phase) for one in found for phase in one["phases"]]
    half = len(_FIGURES) // 2
    parts: list[RenderableType] = [Fitting(_table(rows, _FIGURES), Group(_table(rows, _FIGURES[:half]), _table(rows, _FIGURES[half:])))]
    invalid = [one for one, phase in rows if not phase["summary"]["valid"]]
    parts += [Text(f"invalid: {_name(one)} has failed requests; a comparison with it says nothing", "red") for one in invalid]
    parts.append(Text(""))
    parts += [Text(f"{name}: {DEFINITIONS[key]}", "dim") for name, key in (("TTFT", "ttft_ms"), ("TPOT", "tpot_ms"), ("tok/s", "tps"), ("together", "output_tps"))]  # fmt: skip # noqa: E501
    for one in found:
        parts += [Text.assemble((f"{_name(one)}: ", "bold"), note) for note in one["notes"]]
    return Group(*parts)


def _table(rows: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], figures: Sequence[tuple[str, tuple[str, ...]]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("file", no_wrap=True)
    for name in ("load", "n", "failed", *(name for name, _ in figures)):
        table.add_column(name, justify="right", no_wrap=True)
    first = {_load(phase): phase["summary"] for one, phase in rows if one is rows[0][0]}
    for one, phase in rows:
        summary = phase["summary"]
        base = None if one is rows[0][0] else first.get(_load(phase)) or _one_of_unknown_load(first, phase)
        cells = [_figure(summary, base, path) for _, path in figures]
        table.add_row(*(Text(cell) for cell in (_name(one), _load(phase), str(summary["requests"]), str(summary["failed"]), *cells)))
    return table


def _one_of_unknown_load(first: Mapping[str, Any], phase: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Files that hold one run and not under which load: whoever names them together says that it was the same."""
    return next(iter(first.values())) if len(first) == 1 and UNKNOWN in (*first, _load(phase)) else None


def _name(one: Mapping[str, Any]) -> str:
    return str(one["label"] or f"{Path(one['file']).name} ({one['source']})")


def _load(phase: Mapping[str, Any]) -> str:
    if phase["concurrency"] is not None:
        return f"c={phase['concurrency']}"
    return f"{phase['request_rate']:g}/s" if phase["request_rate"] is not None else UNKNOWN


def _figure(summary: Mapping[str, Any], first: Mapping[str, Any] | None, path: Sequence[str]) -> str:
    value, base = _at(summary, path), _at(first or {}, path)
    if value is None:
        return UNKNOWN
    shown = f"{value:.1f}" if value >= 10 else f"{value:.2f}"  # noqa: PLR2004
    return f"{shown} ({100 * (value / base - 1):+.0f}%)" if base else shown


def _at(summary: Mapping[str, Any], path: Sequence[str]) -> float | None:
    found: Any = summary
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, int | float) else None
