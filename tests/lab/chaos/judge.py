"""What has to be true after every strike."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from sqlalchemy import func
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session, col, select

from service.domain.events import EventType
from service.domain.status import Outcome, Status
from service.store.database import Database
from service.store.tables import BenchPhaseRow, DeliveryRow, EventRow, ExperimentRow, RequestRow, ShiftRow
from tests.lab.chaos.receiver import Receiver
from tests.lab.chaos.table import Verdict
from tests.lab.host import LabHost, NotTrue, wait_for

PATIENCE_S = 120.0
REQUESTS = {1: 5, 4: 5}
"""Measured requests by concurrency: five prompts, once each."""
STARTED, ENDED = "39f53479d3a045ac8e11786248231fbf", {"7ad2d189f7e94e70a38c781354912448", "be02cf6855d2428ba40df7e922f03d4d"}
"""Messages of systemd: a unit has started; it has ended well, or not."""
TOLD = (EventType.EXPERIMENT_FINISHED, EventType.PRODUCTION_RESTORED)
"""What somebody must have been told of."""


def answered(look: Callable[[], bool]) -> bool:
    """What a look finds; the database may be away at the moment."""
    try:
        return look()
    except SQLAlchemyError:
        return False


@dataclass
class Judge:
    """Made before a strike, asked after it."""

    database: Database
    host: LabHost
    receiver: Receiver
    said: Callable[[], str]
    _after: int = field(init=False)
    """The latest event before."""

    def __post_init__(self) -> None:
        with self.database.read() as session:
            self._after = session.exec(select(func.max(EventRow.id))).one() or 0

    def verdict(self, names: Mapping[int, str]) -> Verdict:
        """Wait for the end of these experiments (id -> name) and of their shift, and look at everything that they left."""
        left = self._waited(lambda: self._settled(names))
        self._waited(self._all_told)
        with self.database.read() as session:
            lost = [*self._not_succeeded(session, names), *self._missing(session, names), *self._untold(session)]
            doubled = [*self._ended_twice(session, names), *self._told_twice(session)]
        doubled += self._loads(names)
        not_restored = [] if self.host.is_serving() and not left else ["production is not back" if not self.host.is_serving() else left]
        return Verdict(tuple(lost), tuple(doubled), tuple(not_restored))

    # ---- waiting ----

    def _waited(self, look: Callable[[], bool]) -> str:
        """Empty once it is true; else that it never was."""
        try:
            wait_for(lambda: answered(look), PATIENCE_S, look.__qualname__, every=0.1)
        except NotTrue as error:
            return str(error)
        return ""

    def _settled(self, names: Mapping[int, str]) -> bool:
        with self.database.read() as session:
            waiting = session.exec(
                select(func.count()).where(col(ExperimentRow.id).in_(list(names)), ExperimentRow.status != Status.FINISHED)
            ).one()
            shifts = session.exec(select(func.count()).where(col(ShiftRow.closed_at).is_(None))).one()
        return not waiting and not shifts and self.host.is_serving()

    def _all_told(self) -> bool:
        with self.database.read() as session:
            pending = session.exec(select(func.count()).where(DeliveryRow.status == "pending")).one()
            return not pending and not list(self._untold(session))

    # ---- looking ----

    def _events(self, session: Session, *kinds: EventType) -> list[EventRow]:
        return list(session.exec(select(EventRow).where(col(EventRow.id) > self._after, col(EventRow.type).in_(kinds))))

    @staticmethod
    def _not_succeeded(session: Session, names: Mapping[int, str]) -> Iterator[str]:
        for one in names:
            row = session.get_one(ExperimentRow, one)
            if row.outcome != Outcome.SUCCEEDED:
                yield f"experiment {one}: {row.status} {row.outcome} {row.reason} {row.detail}"

    def _missing(self, session: Session, names: Mapping[int, str]) -> Iterator[str]:
        for one in names:
            query = (
                select(BenchPhaseRow.concurrency, func.count())
                .join(RequestRow, col(RequestRow.bench_phase_id) == BenchPhaseRow.id)
                .where(BenchPhaseRow.experiment_id == one, BenchPhaseRow.kind == "measured", ~col(BenchPhaseRow.superseded))
                .group_by(col(BenchPhaseRow.concurrency))
            )
            measured = dict(session.exec(query).all())
            if measured != REQUESTS:
                yield f"experiment {one} has these requests: {measured}"
        kinds = Counter(event.type for event in self._events(session, *EventType))
        for kind in (EventType.SHIFT_OPENED, EventType.PRODUCTION_PARKED, EventType.PRODUCTION_RESTORED, EventType.SHIFT_CLOSED):
            if not kinds[kind]:
                yield f"no event {kind}"

    def _untold(self, session: Session) -> Iterator[str]:
        for event in self._events(session, *TOLD):
            row = session.exec(select(DeliveryRow).where(DeliveryRow.event_id == event.id)).first()
            if row is None or row.status != "delivered" or not self.receiver.seen[row.message_id]:
                yield f"nobody was told of {event.type} ({event.id})"

    def _ended_twice(self, session: Session, names: Mapping[int, str]) -> Iterator[str]:
        for kind in (EventType.EXPERIMENT_STARTED, EventType.EXPERIMENT_FINISHED):
            told = Counter(event.experiment_id for event in self._events(session, kind))
            yield from (f"experiment {one}: {told[one]} times {kind}" for one in names if told[one] != 1)
        restored = len(self._events(session, EventType.PRODUCTION_RESTORED))
        closed = len(self._events(session, EventType.SHIFT_CLOSED))
        if restored != closed:
            yield f"{closed} shifts, production restored {restored} times"

    def _told_twice(self, session: Session) -> Iterator[str]:
        # Of earlier runs, too: whoever forgets how far it was tells what was told long ago.
        told = col(DeliveryRow.event_id)
        query = select(told, func.count()).where(told.is_not(None)).group_by(told)
        yield from (f"event {event}: {count} messages" for event, count in session.exec(query) if count != 1)

    def _loads(self, names: Mapping[int, str]) -> Iterator[str]:
        """Each was started once, and no two lived at one time."""
        units = {f"expctl-{one}-{name}.service" for one, name in names.items()}
        said = self.host.run("journalctl", "-o", "json", "--no-pager", "-t", "systemd", "--output-fields=MESSAGE_ID,UNIT", "--since=-10min")
        lines = [json.loads(line) for line in said.stdout.splitlines()]
        mine = [line for line in lines if line.get("UNIT") in units]
        starts = Counter(line["UNIT"] for line in mine if line["MESSAGE_ID"] == STARTED)
        yield from (f"{unit} was started {starts[unit]} times" for unit in units if starts[unit] != 1)
        alive: set[str] = set()
        for line in mine:
            if line["MESSAGE_ID"] == STARTED:
                alive.add(line["UNIT"])
                if len(alive) > 1:
                    yield f"at one time: {', '.join(sorted(alive))}"
            elif line["MESSAGE_ID"] in ENDED:
                alive.discard(line["UNIT"])
