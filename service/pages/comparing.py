"""/compare: some experiments against one baseline, only what differs, as the API's comparison says; also as CSV and Markdown."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from service.api.auth import READ
from service.api.compare import compare_experiments
from service.api.deps import ReadSession
from service.api.endings import ended
from service.domain.comparison import Comparison
from service.domain.errors import UsageError
from service.domain.status import Status
from service.pages import charts
from service.pages.doors import PageRoute, Viewer
from service.pages.grid import Grid, grid
from service.pages.grid_files import as_csv, as_markdown
from service.pages.rendering import address, page
from service.store import board, experiments

router = APIRouter(route_class=PageRoute, include_in_schema=False, dependencies=[READ])

CHOICES = 30
MOST = 8
"""Columns that one can still read."""
PROMPTS, LEAST_PROMPTS = 96, 5
"""Prompts that are shown of all levels and columns together, and of each level in any case."""

KEPT = 50
_KNOWN = board.Kept[tuple[int, ...], list[Comparison]]()
"""By the baseline, the others, and whether all fields are wanted."""

Base = Annotated[int | None, Query(ge=1, le=2**31 - 1)]
Ids = Annotated[list[str] | None, Query(max_length=60, description="ids, with commas between them or one a parameter")]


def _candidates(base: int | None, ids: list[str] | None) -> list[int]:
    words = [word.strip() for given in ids or () for word in given.split(",") if word.strip()]
    if not all(word.isdecimal() and 0 < int(word) < 2**31 for word in words):
        raise UsageError("these are no ids of experiments", ", ".join(words)[:80], "write numbers, such as 42,43")
    found = [one for one in dict.fromkeys(map(int, words)) if one != base]
    if len(found) > MOST:
        raise UsageError("too many at once", f"at most {MOST} can be set beside a baseline", "choose fewer")
    return found


def _compared(session: ReadSession, base: int, candidates: list[int], *, all_fields: bool = False) -> tuple[Grid, list[Comparison]]:
    """Kept by the process where all have finished: judging many requests takes a while."""
    rows = [experiments.get(session, one) for one in (base, *candidates)]
    kept, asked = _KNOWN.of(session), (base, *candidates, all_fields)
    comparisons = kept.get(asked)
    if comparisons is None:
        found = compare_experiments(session, base, ",".join(map(str, candidates)), all_fields)
        comparisons = found if isinstance(found, list) else [found]
        if all(row.status == Status.FINISHED for row in rows) and len(kept) < KEPT:
            kept[asked] = comparisons
    return grid(comparisons, {row.id or 0: row.name for row in rows}), comparisons


@router.get("/compare")
def compare(
    request: Request,
    session: ReadSession,
    who: Viewer,
    base: Base = None,
    ids: Ids = None,
    everything: Annotated[bool, Query(alias="all")] = False,
) -> Response:
    """The comparison, or where nothing is named yet the list to choose from."""
    del who
    candidates = _candidates(base, ids)
    if base is None or not candidates:
        latest, _ = board.ended_rows(session, limit=CHOICES)
        chosen = {"title": "Compare", "choices": ended(session, [row for row in latest if row.outcome == "succeeded"]), "base": base}
        return page(request, "choose.html", chosen)
    made, comparisons = _compared(session, base, candidates, all_fields=everything)
    asked = {"base": base, "ids": ",".join(map(str, candidates))}
    comparisons, more = _shortened(comparisons)
    made = grid(comparisons, made.names) if more else made
    rows = {one: experiments.get(session, one) for one in (base, *candidates)}
    context = {
        "title": f"Compare {base} with {', '.join(map(str, candidates))}",
        "grid": made,
        "comparisons": comparisons,
        "rows": rows,
        "more": more,
        "forests": [(one, _forests(one)) for one in comparisons],
        "bars": _bars(comparisons),
        "everything": everything,
        "equal": _same_everywhere(comparisons),
        "running": [one for one, row in rows.items() if row.status != Status.FINISHED],
        "csv": address("/compare.csv", **asked),
        "markdown": address("/compare.md", **asked),
        "toggle": address("/compare", **asked, all=None if everything else "true"),
        "twin": address("/v1/compare", **asked),
    }
    return page(request, "compare.html", context)


def _shortened(comparisons: list[Comparison]) -> tuple[list[Comparison], int]:
    """With the prompts of each level that changed most, where all have no room; and how many of a level were left out."""
    room = max(LEAST_PROMPTS, PROMPTS // sum(len(one.bench_phases) or 1 for one in comparisons))
    changes: dict[tuple[int, str], float] = {}
    for phase in (phase for one in comparisons for phase in one.bench_phases):
        for row in phase.prompts:
            at = (phase.concurrency, row.prompt)
            changes[at] = max(changes.get(at, 0.0), abs(row.tps_change or 0.0))
    levels = {level for level, _ in changes}
    ranked = {level: sorted((one for one in changes if one[0] == level), key=lambda one: -changes[one]) for level in levels}
    kept = {one for found in ranked.values() for one in found[:room]}

    def shortened(one: Comparison) -> Comparison:
        phases = [
            phase.model_copy(update={"prompts": [row for row in phase.prompts if (phase.concurrency, row.prompt) in kept]})
            for phase in one.bench_phases
        ]
        return one.model_copy(update={"bench_phases": phases})

    more = max((len(found) - room for found in ranked.values()), default=0)
    return (comparisons, 0) if more <= 0 else ([shortened(one) for one in comparisons], more)


def _forests(found: Comparison) -> list[tuple[int, charts.Forest | None]]:
    """Per level: each prompt's change of tokens/s with its interval, and over all of them the effect that the verdict stands on."""
    drawn = []
    for phase in found.bench_phases:
        rows: list[tuple[str, float | None, list[float] | None]] = [
            (row.prompt, row.tps_change, row.tps_change_ci95) for row in phase.prompts
        ]
        effect = phase.effect
        if effect is not None:
            interval = [bound - 1 for bound in effect.ci95] if effect.ci95 else None
            rows.append(("all prompts", effect.tps_ratio - 1, interval))
        drawn.append((phase.concurrency, charts.forest(rows)))
    return drawn


def _bars(comparisons: list[Comparison]) -> list[tuple[int, charts.Bars]]:
    """Acceptance by position at each level, every side that reports it."""
    drawn = []
    for number, phase in enumerate(comparisons[0].bench_phases):
        first = phase.speculation["baseline"]
        sides = [(f"baseline {comparisons[0].baseline}", first.per_position_acceptance if first else None)]
        for one in comparisons:
            same = one.bench_phases[number] if number < len(one.bench_phases) else None
            theirs = same.speculation["candidate"] if same else None
            sides.append((str(one.candidate), theirs.per_position_acceptance if theirs else None))
        found = charts.acceptance(sides)
        if found is not None:
            drawn.append((phase.concurrency, found))
    return drawn


def _same_everywhere(comparisons: list[Comparison]) -> dict[str, object]:
    """Paths of the spec that no side has otherwise, and their value; empty where that was not asked for."""
    first, *others = [one.spec_equal or {} for one in comparisons]
    return {path: value for path, value in first.items() if all(path in one for one in others)}


@router.get("/compare.csv")
def csv_file(session: ReadSession, base: Annotated[int, Query(ge=1, le=2**31 - 1)], ids: Ids = None) -> Response:
    """For spreadsheets."""
    candidates = _candidates(base, ids)
    made, comparisons = _compared(session, base, candidates)
    return _file(as_csv(comparisons, made.names), "text/csv", f"compare-{base}-{'-'.join(map(str, candidates))}.csv")


@router.get("/compare.md")
def markdown_file(session: ReadSession, base: Annotated[int, Query(ge=1, le=2**31 - 1)], ids: Ids = None) -> Response:
    """For a page of notes."""
    candidates = _candidates(base, ids)
    made, _ = _compared(session, base, candidates)
    return _file(as_markdown(made), "text/markdown", f"compare-{base}-{'-'.join(map(str, candidates))}.md")


def _file(text: str, kind: str, name: str) -> Response:
    return Response(text, media_type=f"{kind}; charset=utf-8", headers={"content-disposition": f'attachment; filename="{name}"'})
