"""The shapes of the API's answers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel
from sqlmodel import Session

from service.api.moments import host_moment
from service.domain.host_wording import needs_person, shift_text
from service.domain.measurement import PhaseResult, RequestResult
from service.domain.status import Status
from service.store import foresight, hosts
from service.store.tables import HostRow, StepRow, utc_now


class StepOut(BaseModel):
    """One step of an experiment."""

    name: str
    attempt: int
    started_at: datetime
    finished_at: datetime | None
    unit: str | None
    invocation_id: str | None
    evidence: dict[str, Any]


class ExperimentOut(BaseModel):
    """One experiment."""

    id: int
    group_id: str | None
    name: str
    host: str
    created_by: str
    status: Status
    step: str | None
    outcome: str | None
    reason: str | None
    reason_class: str | None
    status_text: str
    where_text: str
    detail: str
    evidence: str
    remedy: str | None
    spec: dict[str, Any]
    spec_hash: str
    engine_hash: str
    bench_hash: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    eta: datetime | None
    """When it is foreseen to have ended: as likely before as after. Null where nothing is known."""
    eta_p90: datetime | None
    """When it has ended in nine of ten cases."""
    starts_at: datetime | None
    """When a queued one is foreseen to start."""
    eta_text: str
    """The same in words, with what it stands on, or why nothing is known."""
    attempt: int
    priority: int
    not_before: datetime | None
    retry_of: int | None
    after: list[int]
    baseline_id: int | None
    load: int
    """Which load of its configuration, of `loads` that were submitted together."""
    loads: int
    load_of: int | None
    """The first of those loads; null for that one itself."""
    recheck_of: int | None
    """The baseline whose configuration is loaded once more here, after its candidates."""
    load_text: str
    """The same in words, such as `load 2 of 3`; empty where there is one load only."""
    progress: dict[str, Any]
    facts: dict[str, Any]
    events_url: str


class ExperimentDetail(ExperimentOut):
    """One experiment with its steps."""

    steps: list[StepOut]


class ExperimentPage(BaseModel):
    """A page of experiments, newest first; `next` is the address of the following page."""

    items: list[ExperimentOut]
    next: str | None


class RequestOut(RequestResult):
    """One request. `prompt_token_ids` and `output_token_ids` are null unless they were asked for; their numbers always stand here."""

    prompt_id_count: int | None = None
    """How many ids of the prompt are kept; null where the server gave none, or they were pruned."""
    output_id_count: int | None = None


class PhaseOut(PhaseResult):
    """One concurrency level."""

    requests: list[RequestOut]  # type: ignore[assignment]  # each of them is a RequestResult, and nothing is ever added


class ResultsOut(BaseModel):
    """What an experiment measured."""

    experiment: ExperimentOut
    phases: list[PhaseOut]
    first_request: RequestOut | None


class LogPiece(BaseModel):
    """Some whole lines of an engine's log."""

    id: int
    step: str
    attempt: int
    at: datetime
    text: str


class LogPage(BaseModel):
    """The log after a cursor. `finished`: nothing more will come."""

    pieces: list[LogPiece]
    cursor: int
    finished: bool


class HostOut(BaseModel):
    """One host."""

    name: str
    transport: str
    simulated: bool
    busy: bool
    """A worker holds the host's lease."""
    worker: str | None
    worker_silent: bool
    blocked: str | None
    paused: bool
    config: dict[str, Any]
    shift_text: str
    """What its shift is at, or when its window opens."""
    night_text: str
    """How much of what waits fits into its night."""
    needs_person: bool
    """Production is not back, or nobody may be there to bring it back."""


def step_out(row: StepRow) -> StepOut:
    """A step's row as shown."""
    return StepOut.model_validate(row, from_attributes=True)


def host_out(session: Session, row: HostRow) -> HostOut:
    """A host's row as shown."""
    silent = {host.id for host in hosts.silent(session)}
    busy = row.lease_token is not None and row.id not in silent
    moment = host_moment(session, row)
    return HostOut(
        name=row.name,
        transport=row.transport,
        simulated=bool(row.config.get("simulated")),
        busy=busy,
        worker=row.lease_owner,
        worker_silent=row.id in silent,
        blocked=row.blocked,
        paused=row.paused,
        config=row.config,
        shift_text=shift_text(moment),
        night_text=foresight.night(session, row, utc_now()).text(),
        needs_person=needs_person(moment),
    )
