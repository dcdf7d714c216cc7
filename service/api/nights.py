"""/v1/night: how it is going. /v1/timeline: what each host did. /v1/report: what there is to write down."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import AwareDatetime
from sqlmodel import Session

from service.api.auth import READ
from service.api.deps import ReadSession
from service.api.endings import ended
from service.api.experimentviews import experiments_out
from service.api.nightviews import (
    BarOut,
    FailureOut,
    ForeseenOut,
    LaneOut,
    NightOut,
    NumbersOut,
    ParkedOut,
    ProductionOut,
    ReportedOut,
    ReportOut,
    SpanOut,
    TimelineOut,
)
from service.api.schemas import ExperimentOut, host_out
from service.domain.digest import NightFacts, ranked
from service.domain.errors import UsageError
from service.domain.evening import last_evening
from service.domain.experiment_messages import ExperimentFacts, headline_numbers
from service.domain.next_steps import next_steps
from service.domain.reasons import RULES, Reason
from service.domain.status import Outcome, Status
from service.store import board, digest, hosts
from service.store.tables import ExperimentRow, utc_now
from service.store.timeline import Lane, Timeline, endings
from service.store.timeline import timeline as collected

router = APIRouter(prefix="/v1", tags=["nights"], dependencies=[READ])

EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
FORESEEN = 12
"""Of what waits on a host, so much is drawn."""
HORIZON = timedelta(hours=16)
"""And nothing that would end later than this."""

Since = Annotated[AwareDatetime | None, Query(description="from here on; without it the last evening, 18:00 by the service's clock")]
Until = Annotated[AwareDatetime | None, Query(description="up to here; without it now")]
HostName = Annotated[str | None, Query(max_length=200, description="only this host")]


@router.get("/night")
def night(
    session: ReadSession,
    since: Since = None,
    host: HostName = None,
    limit: Annotated[int, Query(ge=1, le=200, description="of what is open, and of what ended")] = 20,
) -> NightOut:
    """What runs, what waits, what ended with its verdict, and how the hosts are."""
    now = utc_now()
    start, _ = stretch(since, None, now)
    places = [hosts.by_name(session, host)] if host is not None else hosts.every(session)
    rows = endings(session, start, now, host).rows
    return NightOut(
        since=start,
        at=now,
        hosts=[host_out(session, row) for row in places],
        counts={Status(one): count for one, count in board.counts(session, host).items() if one != Status.FINISHED},
        open=experiments_out(session, board.open_rows(session, host=host, limit=limit)),
        outcomes=Counter(str(row.outcome) for row in rows),
        ended=ended(session, rows[-limit:]),
    )


@router.get("/timeline")
def timeline(session: ReadSession, since: Since = None, until: Until = None, host: HostName = None) -> TimelineOut:
    """A lane a host: each experiment with its steps, when production was parked, and what is foreseen."""
    now = utc_now()
    start, end = stretch(since, until, now)
    found = collected(session, start, end, host)
    return TimelineOut(since=start, until=end, at=now, hosts=[_lane(session, lane, found, now, end) for lane in found.lanes])


@router.get("/report", response_model_by_alias=True)
def report(session: ReadSession, since: Since = None, until: Until = None, host: HostName = None) -> ReportOut:
    """What was tried, the verdicts with their evidence, the failures by cause, what it cost, and what to try next."""
    now = utc_now()
    start, end = stretch(since, until, now)
    places = [hosts.by_name(session, host)] if host is not None else hosts.every(session)
    found = endings(session, start, end, host)
    told = digest.Night(places, found.worked())
    waiting = board.counts(session, host).get(Status.QUEUED, 0)
    facts = digest.facts(session, told, now) if told.ended else NightFacts([], "", start, waiting=waiting)
    shown = {one.id: one for one in experiments_out(session, found.rows)}
    return ReportOut(
        since=start,
        until=end,
        at=now,
        label=facts.label,
        hosts=facts.hosts,
        outcomes=Counter(str(row.outcome) for row in found.rows),
        ended=_reported(facts, shown),
        failures=_failures(found.rows),
        gpu_s=facts.gpu_s,
        gpus_unknown=facts.gpus_unknown,
        loads=facts.loads,
        production=[ProductionOut(host=name, text=text, proven=proven) for name, text, proven in facts.production],
        waiting=facts.waiting,
        next=next_steps(facts),
    )


def stretch(since: datetime | None, until: datetime | None, now: datetime) -> tuple[datetime, datetime]:
    """In the zone of whoever asks, as far as they say one; without a beginning since the last evening. UsageError for what is none."""
    start = since or last_evening(now.astimezone())
    end = until or now.astimezone(start.tzinfo)
    if start < EARLIEST:
        # Near the first year a moment cannot be taken to another zone.
        raise UsageError("the beginning lies too far back", start.isoformat(), f"give one after {EARLIEST:%Y-%m-%d}")
    if end < start:
        raise UsageError("the end lies before the beginning", f"from {start.isoformat()} to {end.isoformat()}", "give a later `until`")
    return start, end


def _reported(facts: NightFacts, shown: dict[int, ExperimentOut]) -> list[ReportedOut]:
    first = ranked(facts)
    known = {one.id: one for one in facts.experiments}
    order = [one.id for one in first] + [one for one in shown if one not in {found.id for found in first}]
    return [_one(known.get(number), shown[number]) for number in order]


def _one(found: ExperimentFacts | None, item: ExperimentOut) -> ReportedOut:
    """`found` is None for what ended before it had started."""
    numbers: dict[str, Any] = headline_numbers(found) if found else dict.fromkeys(NumbersOut.model_fields)
    return ReportedOut(
        experiment=item,
        numbers=NumbersOut(**numbers),
        comparison=found.comparison if found else None,
        not_compared=found.not_compared if found else "",
    )


def _failures(rows: list[ExperimentRow]) -> list[FailureOut]:
    lost = [row for row in rows if row.outcome in {Outcome.FAILED, Outcome.INVALID} and row.reason]
    found = []
    for name, _ in Counter(str(row.reason) for row in lost).most_common():
        reason = Reason(name)
        rule, ids = RULES[reason], [row.id or 0 for row in lost if row.reason == name]
        found.append(FailureOut(reason=reason, reason_class=rule.reason_class, sentence=rule.sentence, remedy=rule.remedy, ids=ids))
    return found


def _lane(session: Session, lane: Lane, found: Timeline, now: datetime, end: datetime) -> LaneOut:
    name = lane.host.name
    return LaneOut(
        host=name,
        simulated=bool(lane.host.config.get("simulated")),
        experiments=[_bar(item, found) for item in experiments_out(session, lane.experiments)],
        parked=[ParkedOut(parked_at=one.parked_at, restored_at=one.restored_at) for one in lane.parked],
        foreseen=_foreseen(session, name, now) if end >= now else [],
    )


def _bar(item: ExperimentOut, found: Timeline) -> BarOut:
    steps = [
        SpanOut(step=step.name, attempt=step.attempt, started_at=step.started_at, finished_at=step.finished_at)
        for step in found.steps.get(item.id, [])
    ]
    same = {name: getattr(item, name) for name in BarOut.model_fields if name not in {"steps", "name"}}
    return BarOut(**same, name=f"{item.name} ({item.load_text})" if item.load_text else item.name, steps=steps)


def _foreseen(session: Session, host: str, now: datetime) -> list[ForeseenOut]:
    return [
        ForeseenOut(id=item.id, name=item.name, starts_at=item.starts_at, eta=item.eta)
        for item in foreseen(session, host, now)
        if item.starts_at and item.eta
    ]


def foreseen(session: Session, host: str, now: datetime) -> list[ExperimentOut]:
    """What waits on a host and is expected to end before the horizon, in the order in which it is chosen."""
    rows = board.open_rows(session, statuses=(Status.QUEUED,), host=host, limit=FORESEEN)
    return [item for item in experiments_out(session, rows) if item.starts_at and item.eta and item.eta < now + HORIZON]
