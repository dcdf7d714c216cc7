"""/e/{id}: one experiment, from where it is to what it was worth."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from sqlmodel import Session

from service.api.auth import READ
from service.api.compare import compare_experiments
from service.api.deliveries import DeliveryOut, delivery_out
from service.api.deps import ReadSession, database
from service.api.experimentviews import experiment_detail
from service.api.schemas import ExperimentDetail
from service.domain.access import Access, Scope
from service.domain.comparability import spec_differences
from service.domain.comparison import Comparison
from service.domain.errors import ExpctlError
from service.domain.events import EventType
from service.domain.fairness import sentences
from service.domain.measurement import PhaseResult, RequestResult
from service.domain.spec import FIVE_IDS
from service.domain.statistics import mean
from service.domain.status import Outcome, Status, StepName
from service.pages import charts
from service.pages.doors import PageRoute, Viewer
from service.pages.rendering import page
from service.pages.strip import strip
from service.store import board, experiments, notifiers, outbox, results, steering, steps
from service.store.tables import ExperimentRow, LogRow
from service.store.telling import baseline_of

router = APIRouter(route_class=PageRoute, include_in_schema=False, dependencies=[READ])

LINES = 300
TAIL_BYTES = 30_000
"""Of the log that a page begins with."""
ROWS, FAILURES = 160, 6
"""Prompts that are shown, of all levels together, and failed requests of each."""
SPEC_LETTERS = 12_000
"""Of the whole spec, in which prompts of one's own stand too."""

Id = Annotated[int, Path(ge=1, le=2**31 - 1)]


class Row(NamedTuple):
    """The means of one prompt over its ok requests; None where nothing is known."""

    prompt: str
    ok: int
    sent: int
    tps: float | None
    ttft_s: float | None
    ttfa_s: float | None
    tpot_s: float | None
    tokens: float | None
    reasoning: float | None


class Level(NamedTuple):
    """One bench phase as shown."""

    phase: PhaseResult
    rows: list[Row]
    more_rows: int
    """Prompts that have no room."""
    warnings: list[str]
    failed: list[RequestResult]
    more_failed: int
    bars: charts.Bars | None


@router.get("/e/{experiment_id}")
def one(
    request: Request, session: ReadSession, who: Viewer, experiment_id: Id, step: Annotated[StepName | None, Query()] = None
) -> Response:
    """The page."""
    row = experiments.get(session, experiment_id)
    item = experiment_detail(session, row, steps.every(session, experiment_id))
    base = baseline_of(session, row)
    pieces = board.log_tail(session, experiment_id, step=step)
    context = {
        "title": f"{item.id} {item.name}",
        "item": item,
        "strip": strip(item),
        "actions": _actions(session, item, row, who),
        "finding": _finding(session, item, base),
        "base": base,
        "log": _text(pieces),
        "cursor": pieces[-1].id if pieces else 0,
        "step": step,
        "story": board.story(session, experiment_id),
        "spec_text": _spec_text(item),
        "command": _command(item),
        "deliveries": _deliveries(session, experiment_id),
        **_measured(session, row, base),
        "live": item.status != Status.FINISHED,
        "twin": f"/v1/experiments/{experiment_id}",
    }
    return page(request, "experiment.html", context)


@router.get("/e/{experiment_id}/log.txt")
def whole_log(request: Request, session: ReadSession, experiment_id: Id) -> Response:
    """The engine's log from its first line, as far as it was copied, piece by piece: it may be long."""
    experiments.get(session, experiment_id)
    store = database(request)

    def pieces() -> Iterator[str]:
        after = 0
        while True:
            with store.read() as looking:
                found = steps.log_after(looking, experiment_id, after)
            if not found:
                return
            after = found[-1].id or after
            yield "".join(f"{piece.text}\n" for piece in found)

    return StreamingResponse(pieces(), media_type="text/plain; charset=utf-8")


def _measured(session: Session, row: ExperimentRow, base: int | None) -> dict[str, Any]:
    """What was measured so far, and the charts of it."""
    phases = results.phases(session, row.id or 0, row.attempt)
    other = experiments.get(session, base) if base is not None else None
    theirs = results.phases(session, other.id or 0, other.attempt) if other is not None else []
    sides: list[tuple[str, Sequence[PhaseResult]]] = [(f"baseline {base}", theirs)] if theirs else []
    loads = board.samples(session, row.id or 0, EventType.LOAD_PROGRESS)
    benches = board.samples(session, row.id or 0, EventType.BENCH_PROGRESS)
    return {
        "levels": [_level(row, phase, max(1, ROWS // len(phases))) for phase in phases],
        "first": results.first_request(session, row.id or 0, row.attempt),
        "differences": spec_differences(other.spec, row.spec) if other is not None else {},
        "by_level": charts.by_level([*sides, (str(row.id), phases)]) if phases else None,
        "speed": charts.over_time(benches, "tps", "tok/s"),
        "loading": charts.over_time(loads, "percent", "% loaded"),
    }


def _level(row: ExperimentRow, phase: PhaseResult, room: int) -> Level:
    shares = phase.speculation.per_position_acceptance if phase.speculation else None
    prompts, failed = _prompts(row, phase), [one for one in phase.requests if not one.ok]
    return Level(
        phase=phase,
        rows=[_row(prompt, [one for one in phase.requests if one.prompt == prompt]) for prompt in prompts[:room]],
        more_rows=max(0, len(prompts) - room),
        warnings=sentences(phase.summary.model_dump(mode="json").get("conditions")),
        failed=failed[:FAILURES],
        more_failed=max(0, len(failed) - FAILURES),
        bars=charts.acceptance([("", None), (str(row.id), shares)]),
    )


def _prompts(row: ExperimentRow, phase: PhaseResult) -> list[str]:
    """The prompts' ids in the experiment file's order."""
    asked = row.spec.get("bench", {}).get("prompts", [])
    order = list(FIVE_IDS) if asked == "five" else [str(prompt["id"]) for prompt in asked]
    sent = {one.prompt for one in phase.requests}
    return [prompt for prompt in order if prompt in sent] + sorted(sent - set(order))


def _row(prompt: str, sent: list[RequestResult]) -> Row:
    ok = [one for one in sent if one.ok]

    def over(value: Callable[[RequestResult], float | None]) -> float | None:
        known = [found for one in ok if (found := value(one)) is not None]
        return mean(known) if known else None

    return Row(
        prompt, len(ok), len(sent), over(lambda r: r.tps), over(lambda r: r.ttft_s), over(lambda r: r.ttfa_s), over(lambda r: r.tpot_s),
        over(lambda r: r.completion_tokens), over(lambda r: r.reasoning_tokens),
    )  # fmt: skip


def _finding(session: Session, item: ExperimentDetail, base: int | None) -> Comparison | None:
    """Against its baseline, as the API says it."""
    if base is None or item.outcome != Outcome.SUCCEEDED:
        return None
    try:
        found = compare_experiments(session, base, str(item.id))
    except ExpctlError:
        return None  # nothing was measured on one of the sides, as its own page says
    return found if isinstance(found, Comparison) else None


class Actions(NamedTuple):
    """What may be done to an experiment now, by whoever looks."""

    cancel: bool = False
    hold: bool = False
    release: bool = False
    move: bool = False
    retry: bool = False
    pin: bool = False
    unpin: bool = False


def _actions(session: Session, item: ExperimentDetail, row: ExperimentRow, who: Access) -> Actions:
    if not (who.may(Scope.ADMIN) or (who.may(Scope.SUBMIT) and item.created_by == who.name)):
        return Actions()
    pinned = {(one.host_id, one.served_model): one.experiment_id for one in steering.baselines(session)}
    is_pinned = pinned.get((row.host_id, row.served_model)) == item.id
    measured = item.outcome == Outcome.SUCCEEDED and item.spec["engine"]["kind"] != "command"
    return Actions(
        cancel=item.status in {Status.QUEUED, Status.HELD, Status.RUNNING},
        hold=item.status == Status.QUEUED,
        release=item.status == Status.HELD,
        move=item.status in {Status.QUEUED, Status.HELD},
        retry=item.status == Status.FINISHED,
        pin=measured and not is_pinned,
        unpin=is_pinned,
    )


def _text(pieces: Sequence[LogRow]) -> str:
    """The last lines of a log."""
    text = "\n".join(piece.text for piece in pieces)
    if len(text) > TAIL_BYTES:
        text = text[-TAIL_BYTES:].partition("\n")[2]
    return "\n".join(text.split("\n")[-LINES:])


def _spec_text(item: ExperimentDetail) -> str:
    """The spec as JSON, as far as it has room."""
    text = json.dumps(item.spec, ensure_ascii=False, indent=1, default=str)
    return text if len(text) <= SPEC_LETTERS else f"{text[:SPEC_LETTERS]}\n... (the rest: `expctl show {item.id} --json`)"


def _command(item: ExperimentDetail) -> str:
    """The engine's command line as it was started."""
    argv = next((step.evidence["argv"] for step in reversed(item.steps) if step.evidence.get("argv")), None)
    return shlex.join(argv) if argv else ""


def _deliveries(session: Session, experiment_id: int) -> list[DeliveryOut]:
    names = {row.id or 0: row for row in notifiers.every(session)}
    found = outbox.listing(session, experiment_id=experiment_id, limit=20)
    return [delivery_out(row, names[row.notifier_id]) for row in found]
