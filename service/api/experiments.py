"""/v1/experiments: list, show, cancel, events, log, results."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Query

from service.api.auth import READ, SUBMIT, Caller, own
from service.api.deps import ReadSession, WriteSession
from service.api.experimentviews import experiment_detail, experiment_out, experiments_out
from service.api.resultviews import results_out
from service.api.schemas import ExperimentDetail, ExperimentOut, ExperimentPage, LogPage, LogPiece, ResultsOut
from service.domain.events import Event
from service.domain.status import Status, StepName
from service.store import events, experiments, steps

router = APIRouter(prefix="/v1/experiments", tags=["experiments"], dependencies=[READ])

Id = Annotated[int, Path(ge=1, le=2**31 - 1)]
After = Annotated[int, Query(ge=0, le=2**62, description="go on after this id")]


@router.get("")
def listing(
    session: ReadSession,
    status: Annotated[list[Status] | None, Query()] = None,
    host: Annotated[str | None, Query(max_length=200)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    before: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    cursor: Annotated[int | None, Query(ge=1, le=2**31 - 1, description="the same as `before`")] = None,
) -> ExperimentPage:
    """Experiments, newest first."""
    before = before or cursor
    rows = experiments.listing(session, statuses=status, host=host, limit=limit + 1, before=before)
    more = len(rows) > limit
    rows = rows[:limit]
    following = None
    if more:
        asked = {"limit": limit, "before": rows[-1].id, "status": status or [], **({"host": host} if host else {})}
        following = f"/v1/experiments?{urlencode(asked, doseq=True)}"
    return ExperimentPage(items=experiments_out(session, rows), next=following)


@router.get("/{experiment_id}")
def show(session: ReadSession, experiment_id: Id) -> ExperimentDetail:
    """One experiment with its steps."""
    row = experiments.get(session, experiment_id)
    return experiment_detail(session, row, steps.every(session, experiment_id))


@router.post("/{experiment_id}/cancel", dependencies=[SUBMIT])
def cancel(session: WriteSession, access: Caller, experiment_id: Id) -> ExperimentOut:
    """Ask for an end: a waiting experiment ends at once, a running one is stopped by its worker."""
    own(session, access, experiment_id)
    return experiment_out(session, experiments.cancel(session, experiment_id, access.name))


@router.get("/{experiment_id}/events")
def experiment_events(session: ReadSession, experiment_id: Id, after: After = 0) -> list[Event]:
    """What happened to one experiment, oldest first."""
    experiments.get(session, experiment_id)
    return events.since(session, after, experiment_id=experiment_id)


@router.get("/{experiment_id}/logs")
def logs(session: ReadSession, experiment_id: Id, after: After = 0, step: Annotated[StepName | None, Query()] = None) -> LogPage:
    """The engine's log as copied, oldest first; ask again with the cursor for more."""
    row = experiments.get(session, experiment_id)
    pieces = steps.log_after(session, experiment_id, after, step=step)
    cursor = pieces[-1].id or after if pieces else after
    shown = [LogPiece.model_validate(piece, from_attributes=True) for piece in pieces]
    return LogPage(pieces=shown, cursor=cursor, finished=row.status == Status.FINISHED and not pieces)


@router.get("/{experiment_id}/results")
def show_results(
    session: ReadSession,
    experiment_id: Id,
    ids: Annotated[bool, Query(description="with the ids of the tokens of prompts and answers, as long as these")] = False,
) -> ResultsOut:
    """What was measured, so far or in the end."""
    return results_out(session, experiments.get(session, experiment_id), ids=ids)
