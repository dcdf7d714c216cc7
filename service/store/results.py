"""Bench phases, requests and speculation: written as they are measured, read back as the records they were."""

from __future__ import annotations

from typing import Any, Literal

from sqlalchemy.orm import defer
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from service.domain.measurement import PhaseResult, PhaseSummary, RequestResult
from service.domain.speculation import Speculation
from service.store import hosts
from service.store.hosts import Lease
from service.store.tables import BenchPhaseRow, RequestRow, SpeculationRow, utc_now

Kind = Literal["first_request", "warmup", "measured"]

_ELSEWHERE = {"speculation"}
_REQUEST_COLUMNS = [name for name in RequestResult.model_fields if name not in _ELSEWHERE]
_IDS = ("prompt_token_ids", "output_token_ids")
"""As long as prompt and answer, and only to be shown: read where they are asked for."""
_SPECULATION_COLUMNS = list(Speculation.model_fields)


def begin_phase(session: Session, lease: Lease, experiment_id: int, attempt: int, kind: Kind, concurrency: int) -> int:
    """Begin a bench phase. One of the same kind and level that was cut before is marked superseded; its rows stay."""
    hosts.guard(session, lease)
    for cut in _unfinished(session, experiment_id, attempt, kind, concurrency):
        cut.superseded = True
        session.add(cut)
    row = BenchPhaseRow(experiment_id=experiment_id, attempt=attempt, kind=kind, concurrency=concurrency)
    session.add(row)
    session.flush()
    return row.id or 0


def _unfinished(session: Session, experiment_id: int, attempt: int, kind: Kind, concurrency: int) -> list[BenchPhaseRow]:
    return list(
        session.exec(
            select(BenchPhaseRow).where(
                BenchPhaseRow.experiment_id == experiment_id,
                BenchPhaseRow.attempt == attempt,
                BenchPhaseRow.kind == kind,
                BenchPhaseRow.concurrency == concurrency,
                col(BenchPhaseRow.finished_at).is_(None),
            )
        )
    )


def add_request(session: Session, lease: Lease, phase_id: int, result: RequestResult) -> None:
    """One request as soon as it ended."""
    hosts.guard(session, lease)
    row = RequestRow(bench_phase_id=phase_id, **{name: getattr(result, name) for name in _REQUEST_COLUMNS})
    session.add(row)
    session.flush()
    if result.speculation is not None:
        session.add(_speculation_row(phase_id, row.id, result.speculation))


def end_phase(session: Session, lease: Lease, phase_id: int, summary: PhaseSummary | None, speculation: Speculation | None) -> None:
    """End a bench phase with its summary."""
    hosts.guard(session, lease)
    row = session.get_one(BenchPhaseRow, phase_id)
    row.finished_at = utc_now()
    row.summary = summary.model_dump(mode="json") if summary else {}
    session.add(row)
    if speculation is not None:
        session.add(_speculation_row(phase_id, None, speculation))


def _speculation_row(phase_id: int, request_id: int | None, value: Speculation) -> SpeculationRow:
    columns: dict[str, Any] = {name: getattr(value, name) for name in _SPECULATION_COLUMNS}
    return SpeculationRow(bench_phase_id=phase_id, request_id=request_id, **columns)


def phases(session: Session, experiment_id: int, attempt: int, kind: Kind = "measured", *, ids: bool = False) -> list[PhaseResult]:
    """The finished bench phases that count, in order, with their requests; with the tokens' ids where `ids` says so."""
    found = session.exec(
        select(BenchPhaseRow)
        .where(
            BenchPhaseRow.experiment_id == experiment_id,
            BenchPhaseRow.attempt == attempt,
            BenchPhaseRow.kind == kind,
            col(BenchPhaseRow.superseded).is_(False),
            col(BenchPhaseRow.finished_at).is_not(None),
        )
        .order_by(col(BenchPhaseRow.id))
    )
    return [_phase(session, row, ids=ids) for row in found]


def _phase(session: Session, row: BenchPhaseRow, *, ids: bool) -> PhaseResult:
    speculation: dict[int | None, Speculation] = {
        item.request_id: Speculation(**{name: getattr(item, name) for name in _SPECULATION_COLUMNS})
        for item in session.exec(select(SpeculationRow).where(SpeculationRow.bench_phase_id == row.id))
    }
    query = _with_ids(select(RequestRow).where(RequestRow.bench_phase_id == row.id).order_by(col(RequestRow.id)), ids=ids)
    requests = [_request(item, speculation.get(item.id), ids=ids) for item in session.exec(query)]
    summary = PhaseSummary.model_validate(row.summary)
    return PhaseResult(concurrency=row.concurrency, requests=requests, summary=summary, speculation=speculation.get(None))


def _with_ids(query: SelectOfScalar[RequestRow], *, ids: bool) -> SelectOfScalar[RequestRow]:
    return query if ids else query.options(*(defer(getattr(RequestRow, name), raiseload=True) for name in _IDS))


def _request(row: RequestRow, speculation: Speculation | None, *, ids: bool) -> RequestResult:
    read = [name for name in _REQUEST_COLUMNS if ids or name not in _IDS]
    return RequestResult(**{name: getattr(row, name) for name in read}, speculation=speculation)


def first_request(session: Session, experiment_id: int, attempt: int, *, ids: bool = False) -> RequestResult | None:
    """The first request after the load, kept apart."""
    query = (
        select(RequestRow)
        .join(BenchPhaseRow, col(BenchPhaseRow.id) == RequestRow.bench_phase_id)
        .where(BenchPhaseRow.experiment_id == experiment_id, BenchPhaseRow.attempt == attempt, BenchPhaseRow.kind == "first_request")
        .order_by(col(RequestRow.id))
        .limit(1)
    )
    row = session.exec(_with_ids(query, ids=ids)).one_or_none()
    return None if row is None else _request(row, None, ids=ids)
