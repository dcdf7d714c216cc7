"""Several candidates beside their baseline: a row a figure, a column an experiment, the findings first.

Takes the JSON of comparisons. Nothing is computed but a change from two of its figures; verdicts and intervals are its own. Where the
screen is too narrow, one comparison stands below the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from expctl.views.comparison import (
    NAME,
    NO_CHANGE,
    PERCENTILES,
    STYLES,
    UNKNOWN,
    bullet,
    count_text,
    equal_table,
    loads_text,
    number,
    percent,
    phase_sentence,
    render,
    signs_text,
    value_text,
    verdict_sentence,
)
from expctl.views.fitting import Fitting

_LABEL, _TEXT = 34, 24
"""Widths from which a row's name and a text of a column are folded."""
_SHORT = 8
_GROUPS = (("decode tok/s by prompt", "tps"), ("TPOT ms, mean", "tpot_ms"), ("TTFT ms, mean", "ttft_ms"))
_BULLETS = (("why not", "why_not"), ("warning", "warnings"), ("to see more", "advice"))

Json = Mapping[str, Any]
Phases = Sequence[Json | None]


class Cell(NamedTuple):
    """A figure, what it is against the baseline, and the 95 % interval of that; or a text alone."""

    figure: str
    change: str = ""
    interval: str = ""
    style: str = ""
    is_text: bool = False


class Row(NamedTuple):
    """A name and its cells, the baseline's first; without cells it is a title."""

    name: str
    cells: Sequence[Cell] = ()


def side_by_side(comparisons: Sequence[Json], names: Mapping[int, str]) -> RenderableType:
    """Comparisons with one baseline; `names`: of every experiment in them."""
    blocks = Group(*(render(one, names[one["baseline"]], names[one["candidate"]]) for one in comparisons))
    return Fitting(_Columns(comparisons, names), blocks)


class _Columns:
    """As wide as its table: the sentences around it may be folded, so they do not count."""

    def __init__(self, comparisons: Sequence[Json], names: Mapping[int, str]) -> None:
        self._table = _table(comparisons)
        self._all = Group(*_findings(comparisons, names), self._table, *_equal(comparisons), *_remarks(comparisons))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._table)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._all


def _findings(comparisons: Sequence[Json], names: Mapping[int, str]) -> Iterator[Text]:
    """The baseline's name, and the verdict on each candidate."""
    for one in comparisons:
        number_, style = one["candidate"], STYLES.get(str(one["verdict"]), "bold")
        yield Text.assemble(f"{number_}  {names[number_]}{loads_text(one, 'candidate')}: ", (verdict_sentence(one), style))
        for phase in one["bench_phases"][1:]:
            yield Text(f"    at concurrency {phase['concurrency']}: {phase_sentence(phase)}")
    first = comparisons[0]
    yield Text(f"against {first['baseline']}  {names[first['baseline']]}{loads_text(first, 'baseline')}\n")


def _table(comparisons: Sequence[Json]) -> Table:
    """All rows in one table, so that the columns of every bench phase stand below one another."""
    levels = list(dict.fromkeys(phase["concurrency"] for one in comparisons for phase in one["bench_phases"]))
    sections = [_differences(comparisons)]
    sections += [[Row(f"concurrency {level}"), *_level([_phase(one, level) for one in comparisons])] for level in levels]
    sections = [section for section in sections if section]
    every = [row.cells for section in sections for row in section if row.cells]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("", overflow="fold", max_width=_LABEL)
    heads = [f"{comparisons[0]['baseline']} baseline", *(str(one["candidate"]) for one in comparisons)]
    widths = [_widths([cells[n] for cells in every]) for n in range(len(heads))]
    for head, width in zip(heads, widths, strict=True):
        table.add_column(head, overflow="fold", max_width=max(sum(width) + 2, _TEXT))
    for section in sections:
        for n, row in enumerate(section):
            shown = [_drawn(cell, width) for cell, width in zip(row.cells, widths, strict=True)] if row.cells else []
            table.add_row(Text(row.name, style="" if row.cells else "bold"), *shown, end_section=n == len(section) - 1)
    return table


def _widths(cells: Sequence[Cell]) -> tuple[int, int, int]:
    figures = [cell for cell in cells if not cell.is_text]
    return (
        max((len(cell.figure) for cell in figures), default=0),
        max((len(cell.change) for cell in figures), default=0),
        max((len(cell.interval) for cell in figures), default=0),
    )


def _drawn(cell: Cell, widths: tuple[int, int, int]) -> Text:
    """Figures below figures, changes below changes."""
    if cell.is_text:
        return Text(cell.figure, style=cell.style)
    figure, change, interval = (text.rjust(width) for text, width in zip((cell.figure, cell.change, cell.interval), widths, strict=True))
    drawn = Text.assemble(figure, " ", (change, cell.style), " ", interval)
    drawn.rstrip()
    return drawn


def _differences(comparisons: Sequence[Json]) -> list[Row]:
    """What any spec has otherwise. A candidate that names no difference has the baseline's value."""
    paths = list(dict.fromkeys(path for one in comparisons for path in one["spec_differences"]))
    rows = []
    for path in paths:
        base = next(one["spec_differences"][path][0] for one in comparisons if path in one["spec_differences"])
        values = [base, *(one["spec_differences"].get(path, [base, base])[1] for one in comparisons)]
        rows.append(Row(_tail(path, paths), [_said(value_text(value)) for value in values]))
    return [Row("differs in"), *rows] if rows else []


def _tail(path: str, paths: Sequence[str]) -> str:
    """The end of a path by which it can be told from the others. A short word says little without the one above it: `speculative.model`."""
    words = path.split(".")
    tails = (".".join(words[-n:]) for n in range(1 + (len(words[-1]) <= _SHORT), len(words)))
    return next((tail for tail in tails if not any(f".{one}".endswith(f".{tail}") for one in paths if one != path)), path)


def _equal(comparisons: Sequence[Json]) -> Iterator[Table]:
    """What is the same in all columns, where it was asked for."""
    first, *others = [one.get("spec_equal") or {} for one in comparisons]
    if same := {path: value for path, value in first.items() if all(path in one for one in others)}:
        yield equal_table(same)


def _said(text: str) -> Cell:
    return Cell(text, is_text=True)


def _phase(comparison: Json, level: int) -> Json | None:
    return next((phase for phase in comparison["bench_phases"] if phase["concurrency"] == level), None)


def _level(phases: Phases) -> list[Row]:
    base = next((phase["output_tps"][0] for phase in phases if phase), None)
    together = [Cell(number(phase["output_tps"][1] if phase else None)) for phase in phases]
    rows = [Row("output tok/s", [Cell(number(base)), *together])]
    rows.append(Row("decode tok/s, all prompts", [Cell(""), *(_effect(phase) for phase in phases)]))
    if any(phase and phase.get("drift") for phase in phases):
        rows.append(Row("baseline measured again", [Cell(""), *(_drift(phase) for phase in phases)]))
    prompts = list(dict.fromkeys(row["prompt"] for phase in phases if phase for row in phase["prompts"]))
    for title, key in _GROUPS:
        found = [*(_prompt(prompt, phases, key) for prompt in prompts), *_percentiles(phases, key)]
        known = [row for row in found if any(cell.figure != UNKNOWN for cell in row.cells)]
        rows += [Row(title), *known] if known else []
    return rows + _speculation(phases) + _break_even(prompts, phases)


def _span(interval: Sequence[float] | None) -> str:
    """The bounds of a change in percent."""
    return f"[{percent(interval[0])}, {percent(interval[1])}]".replace("%", "") if interval else ""


def _effect(phase: Json | None) -> Cell:
    """How fast the candidate decodes over all prompts: nothing where a number would be believed wrongly."""
    effect = phase.get("effect") if phase else None
    if phase is None or not effect:
        return _said(str(phase["verdict"]).replace("_", " ") if phase else UNKNOWN)
    shown = phase["verdict"] in {"better", "worse"}
    interval = [bound - 1 for bound in effect["ci95"]] if effect.get("ci95") else None
    return Cell("", percent(effect["tps_ratio"] - 1) if shown else NO_CHANGE, _span(interval), STYLES.get(str(phase["verdict"]), ""))


def _drift(phase: Json | None) -> Cell:
    drift = phase.get("drift") if phase else None
    if not drift:
        return Cell(UNKNOWN)
    interval = [bound - 1 for bound in drift["ci95"]] if drift.get("ci95") else None
    return Cell("", percent(drift["tps_ratio"] - 1) if drift["shown"] else NO_CHANGE, _span(interval))


def _row_of(prompt: str, phase: Json | None) -> Json | None:
    return next((row for row in phase["prompts"] if row["prompt"] == prompt), None) if phase else None


def _prompt(prompt: str, phases: Phases, key: str) -> Row:
    """One figure of one prompt. Changes are against the baseline of the same comparison, and none is shown where there is no verdict."""
    found = [_row_of(prompt, phase) for phase in phases]
    base = next((row[key][0] for row in found if row and row[key][0] is not None), None)
    cells = [_change(row, key, judged=bool(phase and phase.get("effect"))) for row, phase in zip(found, phases, strict=True)]
    short = prompt if len(prompt) <= NAME else f"{prompt[: NAME - 1]}…"
    return Row(f"  {short}", [Cell(number(base)), *cells])


def _change(row: Json | None, key: str, *, judged: bool) -> Cell:
    if row is None:
        return Cell(UNKNOWN)
    old, new = row[key]
    if not judged or not old or new is None:
        return Cell(number(new))
    interval = row.get("tps_change_ci95")
    if key == "ttft_ms":
        return Cell(number(new), percent(new / old - 1))
    sure = interval is not None and not interval[0] <= 0 <= interval[1]
    change = percent(new / old - 1) if sure else NO_CHANGE
    return Cell(number(new), change, _span(interval) if key == "tps" else "", "bold" if sure else "")


def _percentiles(phases: Phases, key: str) -> list[Row]:
    """The middle and the tail of a figure over all requests, where it is known. What too few of them stand behind has no change."""
    found = [((phase.get("percentiles") or {}).get(key)) if phase else None for phase in phases]
    counts = [n for one in found if one for n in one["n"]]
    return [_tail_row(name, count_text(counts), found, phases) for name in PERCENTILES] if counts else []


def _tail_row(name: str, count: str, found: Sequence[Json | None], phases: Phases) -> Row:
    base = next((one[name][0] for one in found if one and one[name][0] is not None), None)
    cells = []
    for one, phase in zip(found, phases, strict=True):
        old, new = one[name] if one else (None, None)
        judged = one is not None and name not in one["few"] and bool(phase and phase.get("effect"))
        cells.append(Cell(number(new), percent(new / old - 1) if judged and old and new is not None else ""))
    return Row(f"  all prompts, {name} ({count})", [Cell(number(base)), *cells])


def _speculation(phases: Phases) -> list[Row]:
    base = next((_speculating(phase, "baseline") for phase in phases if phase), None)
    shown = [base, *(_speculating(phase, "candidate") for phase in phases)]
    if {one["status"] for one in shown if one} <= {"off", "not_reported"}:
        return []
    rows: tuple[tuple[str, Callable[[Json], str]], ...] = (
        ("speculation", lambda one: str(one["status"]).replace("_", " ")),
        ("accepted length", lambda one: _two(one.get("mean_acceptance_length"))),
        ("by position, %", lambda one: " ".join(f"{100 * share:.0f}" for share in one.get("per_position_acceptance") or ()) or UNKNOWN),
        ("tokens per step", lambda one: _two(one.get("effective_tokens_per_step"))),
        ("steps with a draft, %", lambda one: UNKNOWN if one.get("draft_coverage") is None else f"{100 * one['draft_coverage']:.0f}"),
    )
    return [Row(name, [_said(text(one) if one else UNKNOWN) for one in shown]) for name, text in rows]


def _speculating(phase: Json | None, side: str) -> Json | None:
    """None where the level was not measured at all."""
    found: Json | None = (phase.get("speculation") or {}).get(side) if phase else None
    return None if phase is None else found or {"status": "not_reported"}


def _two(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f}"


def _break_even(prompts: Sequence[str], phases: Phases) -> list[Row]:
    """The tokens a step at which a candidate would be as fast as the baseline, and those that it has."""
    rows = []
    for prompt in prompts:
        found = [_row_of(prompt, phase) or {} for phase in phases]
        if any(row.get("break_even_tokens_per_step") is not None for row in found):
            words = [
                UNKNOWN
                if row.get("break_even_tokens_per_step") is None
                else f"{_two(row['break_even_tokens_per_step'])} (has {_two(row.get('tokens_per_step'))})"
                for row in found
            ]
            rows.append(Row(f"  {prompt}", [_said(""), *(_said(one) for one in words)]))
    return [Row("break-even tokens per step"), *rows] if rows else []


def _remarks(comparisons: Sequence[Json]) -> Iterator[Text]:
    """What the signs mean, and what speaks against the figures: each sentence once, with the candidates that it is said of."""
    if any(phase.get("effect") for one in comparisons for phase in one["bench_phases"]):
        phases = [phase for one in comparisons for phase in one["bench_phases"]]
        yield Text(signs_text(phases, "[ ] 95 % interval of the change, in percent; "), style="dim")
    bases = [[(one.get("experiments") or {}).get(side) or [] for side in ("baseline", "recheck")] for one in comparisons]
    if any(base != bases[0] for base in bases):
        first = comparisons[0]["candidate"]
        yield bullet("baseline: ", f"its column is that of {first}; every change is against the loads that belong to its own candidate")
    for title, key in _BULLETS:
        said: dict[str, list[str]] = {}
        for one in comparisons:
            for sentence in one.get(key) or []:
                said.setdefault(sentence, []).append(str(one["candidate"]))
        for sentence, of in said.items():
            whose = "" if len(of) == len(comparisons) else f", {', '.join(of)}"
            yield bullet(f"{title}{whose}: ", sentence)
