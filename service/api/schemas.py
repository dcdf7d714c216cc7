"""The shapes of the API's answers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel
from sqlmodel import Session

from service.api.moments import host_moment, waits_for_host
from service.domain.host_wording import needs_person, shift_text
from service.domain.measurement import PhaseResult, RequestResult
from service.domain.reasons import RULES, Reason
from service.domain.status import ACTIVE, Outcome, Status
from service.domain.wording import not_before_text, status_text, where_text
from service.store import experiments, hosts, steering
from service.store.tables import ExperimentRow, HostRow, StepRow, utc_now


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
    attempt: int
    priority: int
    not_before: datetime | None
    retry_of: int | None
    after: list[int]
    baseline_id: int | None
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


class ResultsOut(BaseModel):
    """What an experiment measured."""

    experiment: ExperimentOut
    phases: list[PhaseResult]
    first_request: RequestResult | None


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
    needs_person: bool
    """Production is not back, or nobody may be there to bring it back."""


def step_out(row: StepRow) -> StepOut:
    """A step's row as shown."""
    return StepOut.model_validate(row, from_attributes=True)


def experiment_out(session: Session, row: ExperimentRow) -> ExperimentOut:
    """An experiment's row as shown."""
    return ExperimentOut(**_experiment(session, row))


def experiment_detail(session: Session, row: ExperimentRow, steps: list[StepRow]) -> ExperimentDetail:
    """An experiment's row with its steps."""
    return ExperimentDetail(**_experiment(session, row), steps=[step_out(step) for step in steps])


def _experiment(session: Session, row: ExperimentRow) -> dict[str, Any]:
    status = Status(row.status)
    ahead = experiments.queue_position(session, row) if status == Status.QUEUED else 0
    rule = RULES[Reason(row.reason)] if row.reason else None
    attended = status not in ACTIVE or hosts.attended(session, row.host_id)
    same = {name: getattr(row, name) for name in ExperimentOut.model_fields if hasattr(row, name)}
    return same | {
        "host": experiments.host_name(session, row),
        "status": status,
        "reason_class": rule.reason_class if rule else None,
        "remedy": rule.remedy if rule else None,
        "status_text": status_text(status, row.step, row.outcome, row.reason, row.spec["engine"]["kind"], attended=attended),
        "where_text": where_text(status, row.step, row.progress, ahead, row.detail)
        if status not in {Status.QUEUED, Status.HELD}
        else _waits(session, row, ahead),
        "after": steering.dependencies(session, row.id or 0),
        "eta": None,
        "events_url": f"/v1/experiments/{row.id}/events",
    }


def _waits(session: Session, row: ExperimentRow, ahead: int) -> str:
    """What a queued experiment waits for, the longest wait first."""
    if row.status == Status.HELD:
        return row.held_because or ""
    unmet = [one for one in steering.dependencies(session, row.id or 0) if experiments.get(session, one).outcome != Outcome.SUCCEEDED]
    if unmet:
        return f"after {', '.join(map(str, unmet))}"
    if row.not_before is not None and row.not_before > utc_now():
        return not_before_text(row.not_before.astimezone(), utc_now().astimezone())
    host = hosts.by_name(session, experiments.host_name(session, row))
    return waits_for_host(session, host, row) or where_text(Status.QUEUED, None, {}, ahead, "")


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
        needs_person=needs_person(moment),
    )
