"""Results as shown: how many ids of tokens are kept with each request, and the ids themselves where they are asked for."""

from __future__ import annotations

from sqlmodel import Session

from service.api.experimentviews import experiment_out
from service.api.schemas import PhaseOut, RequestOut, ResultsOut
from service.domain.measurement import PhaseResult, RequestResult
from service.store import results
from service.store.tables import ExperimentRow


def results_out(session: Session, row: ExperimentRow, *, ids: bool) -> ResultsOut:
    """What was measured so far."""
    experiment_id, attempt = row.id or 0, row.attempt
    first = results.first_request(session, experiment_id, attempt, ids=True)
    return ResultsOut(
        experiment=experiment_out(session, row),
        phases=[_phase(phase, ids=ids) for phase in results.phases(session, experiment_id, attempt, ids=True)],
        first_request=_request(first, ids=ids) if first else None,
    )


def _phase(phase: PhaseResult, *, ids: bool) -> PhaseOut:
    requests = [_request(one, ids=ids) for one in phase.requests]
    return PhaseOut(concurrency=phase.concurrency, requests=requests, summary=phase.summary, speculation=phase.speculation)


def _request(result: RequestResult, *, ids: bool) -> RequestOut:
    prompt, output = result.prompt_token_ids, result.output_token_ids
    shown = dict(result) if ids else dict(result) | {"prompt_token_ids": None, "output_token_ids": None}
    return RequestOut(
        **shown,
        prompt_id_count=None if prompt is None else len(prompt),
        output_id_count=None if output is None else len(output),
    )
