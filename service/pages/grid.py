"""A comparison of several candidates with one baseline as a grid: a row a figure, a column an experiment.

Nothing is computed here but a change from two figures of the API's answer; verdicts and intervals are the API's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from service.domain.comparison import Comparison, PhaseComparison
from service.domain.percentiles import Percentiles
from service.domain.speculation import Speculation
from service.pages.words import UNKNOWN, figure, ratio, value_text

UNSURE, TIMES = "~", "\N{MULTIPLICATION SIGN}"
NOTEWORTHY = 0.05
"""A change that carries no interval is coloured only from here on: below, it is mostly noise."""


class Cell(NamedTuple):
    """One figure, and what it is against the baseline."""

    text: str
    change: str = ""
    tone: str = ""
    """good, bad or quiet."""
    proven: bool = False
    """The 95 % interval excludes no change."""
    interval: str = ""


class Line(NamedTuple):
    """One row: the baseline's cell first."""

    name: str
    cells: list[Cell]


class Section(NamedTuple):
    """Rows that belong together: the specs' differences, or one level of concurrency."""

    title: str
    lines: list[Line]


@dataclass(frozen=True)
class Grid:
    """Everything that differs."""

    baseline: int
    candidates: list[int]
    names: dict[int, str]
    sections: list[Section]


def grid(comparisons: Sequence[Comparison], names: dict[int, str]) -> Grid:
    """The grid of some comparisons with the same baseline."""
    first = comparisons[0]
    paths = list(dict.fromkeys(path for one in comparisons for path in one.spec_differences))
    differing = Section("What differs", [_difference(path, comparisons) for path in paths])
    levels = list(dict.fromkeys(phase.concurrency for one in comparisons for phase in one.bench_phases))
    sections = [differing] if paths else []
    sections += [Section(f"Concurrency {level}", _level([_phase(one, level) for one in comparisons])) for level in levels]
    return Grid(first.baseline, [one.candidate for one in comparisons], names, sections)


def _phase(found: Comparison, level: int) -> PhaseComparison | None:
    return next((phase for phase in found.bench_phases if phase.concurrency == level), None)


def _difference(path: str, comparisons: Sequence[Comparison]) -> Line:
    """Where a candidate names no difference, it has the baseline's value."""
    base = next(one.spec_differences[path][0] for one in comparisons if path in one.spec_differences)
    return Line(path, [Cell(value_text(base)), *(Cell(value_text(one.spec_differences.get(path, [base, base])[1])) for one in comparisons)])


Phases = Sequence[PhaseComparison | None]
Pair = Sequence[float | None]


def _level(phases: Phases) -> list[Line]:
    lines = [Line("decode tok/s, all prompts", [Cell(f"{TIMES} 1"), *(_effect(phase) for phase in phases)])]
    lines.append(_figures("output tok/s, all together", phases, lambda phase: phase.output_tps))
    prompts = list(dict.fromkeys(row.prompt for phase in phases if phase for row in phase.prompts))
    for title, key in (("tok/s", "tps"), ("TPOT ms", "tpot_ms"), ("TTFT ms", "ttft_ms")):
        lines += [_prompt(title, prompt, phases, key) for prompt in prompts]
        lines += _percentiles(title, phases, key)
    lines += _speculation(phases)
    return [line for line in lines if any(cell.text != UNKNOWN for cell in line.cells[1:])]


def _effect(phase: PhaseComparison | None) -> Cell:
    effect = phase.effect if phase else None
    if phase is None or effect is None:
        return Cell(phase.verdict.replace("_", " ") if phase else UNKNOWN, tone="quiet")
    span = f"[{ratio(effect.ci95[0])}, {ratio(effect.ci95[1])}]" if effect.ci95 else "no interval"
    proven = phase.verdict in {"better", "worse"}
    tone = {"better": "good", "worse": "bad"}.get(phase.verdict, "quiet")
    return Cell(f"{TIMES} {effect.tps_ratio:.3f}", ratio(effect.tps_ratio) if proven else UNSURE, tone, proven, span)


def _pair(pair: Pair, *, up: bool, unsure: bool = False, proven: bool = False) -> Cell:
    """`up`: more is better."""
    old, new = pair
    if not old or new is None:
        return Cell(figure(new))
    if unsure:
        return Cell(figure(new), UNSURE, "quiet")
    small = not proven and abs(new / old - 1) < NOTEWORTHY
    tone = "quiet" if small else "good" if (new > old) == up else "bad"
    return Cell(figure(new), ratio(new / old), tone, proven)


def _figures(name: str, phases: Phases, pair: Callable[[PhaseComparison], Pair]) -> Line:
    base = next((pair(phase)[0] for phase in phases if phase), None)
    return Line(name, [Cell(figure(base)), *(_pair(pair(phase), up=True) if phase else Cell(UNKNOWN) for phase in phases)])


def _prompt(title: str, prompt: str, phases: Phases, key: str) -> Line:
    base: float | None = None
    cells = []
    for phase in phases:
        row = next((one for one in phase.prompts if one.prompt == prompt), None) if phase else None
        if row is None:
            cells.append(Cell(UNKNOWN))
            continue
        pair: Pair = getattr(row, key)
        base = base if base is not None else pair[0]
        interval = row.tps_change_ci95 if key != "ttft_ms" else None
        unsure = interval is not None and interval[0] <= 0 <= interval[1]
        cells.append(_pair(pair, up=key == "tps", unsure=unsure, proven=interval is not None and not unsure))
    return Line(f"{title}, {prompt}", [Cell(figure(base)), *cells])


def _percentiles(title: str, phases: Phases, key: str) -> list[Line]:
    """The middle and the tail over all requests, where the figure has them. What too few of them stand behind has no change."""
    found = [next((one for name, one in phase.percentiles.items() if name == key), None) if phase else None for phase in phases]
    counts = [n for one in found if one for n in one.n]
    if not counts:
        return []
    least, most = min(counts), max(counts)
    count = f"n={least}" if least == most else f"n={least}-{most}"
    return [_percentile(f"{title}, {name} of all prompts ({count})", name, found) for name in ("p50", "p99")]


def _percentile(title: str, name: str, found: Sequence[Percentiles | None]) -> Line:
    pairs: list[Pair] = [getattr(one, name) if one else (None, None) for one in found]
    base = next((pair[0] for pair in pairs if pair[0] is not None), None)
    few = [one is None or name in one.few for one in found]
    cells = [Cell(figure(pair[1])) if silent else _pair(pair, up=False) for pair, silent in zip(pairs, few, strict=True)]
    return Line(title, [Cell(figure(base)), *cells])


def _speculation(phases: Phases) -> list[Line]:
    base = next((phase.speculation["baseline"] for phase in phases if phase), None)
    theirs = [phase.speculation["candidate"] if phase else None for phase in phases]
    if not any(one is not None and one.status == "on" for one in (base, *theirs)):
        return []
    rows: tuple[tuple[str, Callable[[Speculation], str]], ...] = (
        ("speculation", lambda one: one.status.replace("_", " ")),
        ("accepted length", lambda one: figure(one.mean_acceptance_length, 2)),
        ("by position, %", lambda one: " ".join(f"{100 * share:.0f}" for share in one.per_position_acceptance or ()) or UNKNOWN),
        ("tokens per step", lambda one: figure(one.effective_tokens_per_step, 2)),
    )
    return [Line(name, [Cell(text(one)) if one else Cell("not reported") for one in (base, *theirs)]) for name, text in rows]
