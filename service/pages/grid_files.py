"""A comparison as a file: CSV with a line a prompt and candidate, Markdown as the page shows it."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from service.domain.comparison import Comparison, PhaseComparison
from service.domain.definitions import DEFINITIONS, PERCENTILES
from service.pages.grid import Cell, Grid

COLUMNS = (
    "concurrency", "prompt", "baseline", "candidate", "candidate_name", "verdict", "tps_baseline", "tps_candidate", "tps_change",
    "tps_change_low", "tps_change_high", "ttft_ms_baseline", "ttft_ms_candidate", "tpot_ms_baseline", "tpot_ms_candidate",
)  # fmt: skip
ALL = "(all prompts)"
OF_ALL = tuple(f"{figure}_{name}" for figure in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms") for name in ("n", "p50", "p90", "p99"))
"""Known of all prompts together only."""
_DANGEROUS = ("=", "+", "-", "@", "\t", "\r")
"""A cell that begins so is a formula to a spreadsheet."""


def as_csv(comparisons: Sequence[Comparison], names: Mapping[int, str]) -> str:
    """A line a level, prompt and candidate; what is not known is empty. Changes are candidate / baseline - 1."""
    out = io.StringIO()
    for name in ("tps", "ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
        out.write(f"# {name}: {DEFINITIONS[name]}\n")
    out.write(f"# p50, p90, p99: {PERCENTILES}\n")
    writer = csv.DictWriter(out, (*COLUMNS, *_sides(OF_ALL)), restval="", lineterminator="\n")
    writer.writeheader()
    for one in comparisons:
        for phase in one.bench_phases:
            same = {
                "concurrency": phase.concurrency,
                "baseline": one.baseline,
                "candidate": one.candidate,
                "candidate_name": _safe(names[one.candidate]),
                "verdict": phase.verdict,
            }
            for row in phase.prompts:
                low, high = row.tps_change_ci95 or (None, None)
                figures = {"tps_change": row.tps_change, "tps_change_low": low, "tps_change_high": high}
                for name in ("tps", "ttft_ms", "tpot_ms"):
                    figures[f"{name}_baseline"], figures[f"{name}_candidate"] = getattr(row, name)
                writer.writerow(same | {"prompt": _safe(row.prompt)} | {key: _number(value) for key, value in figures.items()})
            if phase.effect is not None or phase.percentiles:
                writer.writerow(same | {"prompt": ALL} | _changes(phase) | _percentiles(phase))
    return out.getvalue()


def _sides(names: Sequence[str]) -> list[str]:
    return [f"{name}_{side}" for name in names for side in ("baseline", "candidate")]


def _changes(phase: PhaseComparison) -> dict[str, str]:
    """What the verdict stands on; nothing where there is no effect."""
    if phase.effect is None:
        return {}
    low, high = phase.effect.ci95 or (None, None)
    bounds = {"tps_change_low": low, "tps_change_high": high, "tps_change": phase.effect.tps_ratio}
    return {key: _number(None if value is None else value - 1) for key, value in bounds.items()}


def _percentiles(phase: PhaseComparison) -> dict[str, str]:
    """Of all requests of the level, with the number of values behind each."""
    pairs = {f"{figure}_{name}": pair for figure, one in phase.percentiles.items() for name, pair in one if name != "few"}
    return {column: _number(value) for name, pair in pairs.items() for column, value in zip(_sides([name]), pair, strict=True)}


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _safe(text: str) -> str:
    return f"'{text}" if text.startswith(_DANGEROUS) else text


def as_markdown(grid: Grid) -> str:
    """A table with a column an experiment; `~` is no change shown."""
    ids = [grid.baseline, *grid.candidates]
    head = ["", *(f"{one} {_escaped(grid.names[one])}" + (" (baseline)" if one == grid.baseline else "") for one in ids)]
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * len(ids)}"]
    for section in grid.sections:
        lines.append(f"| **{_escaped(section.title)}** |{' |' * len(ids)}")
        lines += [f"| {_escaped(line.name)} | {' | '.join(_cell(cell) for cell in line.cells)} |" for line in section.lines]
    said = "Changes of TTFT, of percentiles and of output tok/s carry no interval; of what too few values stand behind none is shown."
    lines += ["", f"`~` no change shown (95 % interval, loads as replicates). {said}"]
    return "\n".join(lines) + "\n"


def _cell(cell: Cell) -> str:
    return _escaped(f"{cell.text} {cell.change} {cell.interval}".strip())


def _escaped(text: Any) -> str:
    return " ".join(str(text).split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")
