"""Experiments that a worker's hands bring to an end, a clock that a test turns, and postmen that go by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlmodel import Session, col, select

from service.domain.events import EventType
from service.domain.reasons import Reason
from service.domain.spec import Spec
from service.domain.status import Outcome, StepName
from service.settings import Settings
from service.store import events, experiments, notifiers, shifts, submission
from service.store.database import Database
from service.store.tables import AttemptRow, DeliveryRow, EventRow, HostRow, NotifierRow
from tests.integration.api.service import Hands
from workers.postman import Postman

START = 1_000_000.0


@dataclass
class Clock:
    """What the postman takes for the database's clock."""

    now: float = START

    def __call__(self, session: Session) -> float:
        del session
        return self.now


class Night:
    """One host and its hands."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.hands = Hands(database)
        self.clock = Clock()

    def postman(self, **settings: str) -> Postman:
        return Postman(self.database, Settings(**{"notify_allow": "127.0.0.1", **settings}), clock=self.clock)

    def notifier(self, name: str, url: str, kind: str = "webhook", **more: Any) -> str | None:
        """Add one, told by default; gives its secret."""
        with self.database.write() as session:
            return notifiers.add(session, name, kind, url, "ann", **{"default": not more.get("hosts"), **more}).secret

    def submit(self, name: str = "x", **changes: Any) -> int:
        spec = {"name": name, "engine": {"kind": "vllm", "model": "m"}, "bench": {"concurrency": [1], "repeat": 2}, **changes}
        with self.database.write() as session:
            return submission.submit(session, Spec.model_validate(spec), "ann").id or 0

    def succeed(self, name: str = "x", tps: float = 60.0, **changes: Any) -> int:
        number = self.submit(name, **changes)
        self.hands.take()
        self.hands.measure(number, tps)
        self.hands.finish(number)
        return number

    def fail(self, name: str = "x", reason: Reason = Reason.ENGINE_DEAD, **changes: Any) -> int:
        number = self.submit(name, **changes)
        self.end(self.hands.take(), reason)
        return number

    def end(self, number: int, reason: Reason) -> None:
        self.hands.log(number, StepName.LOAD, "loading\nERROR it broke")
        self.hands.finish(number, Outcome.FAILED, reason, "as seen")

    def event(self, kind: EventType, experiment_id: int | None = None, **data: Any) -> None:
        with self.database.write() as session:
            events.emit(session, kind, "worker:hands", host="local", experiment_id=experiment_id, data=data)

    def close_shift(self) -> None:
        with self.database.write() as session:
            row = shifts.current(session, self.hands.lease.host_id)
            assert row is not None
            shifts.close(session, self.hands.lease, row.id or 0, "nothing left to do")

    def host(self, **values: Any) -> None:
        with self.database.write() as session:
            row = session.exec(select(HostRow)).one()
            for name, value in values.items():
                setattr(row, name, value)
            session.add(row)

    def cancel(self, number: int) -> None:
        with self.database.write() as session:
            experiments.cancel(session, number, "ann")

    def deliveries(self) -> list[DeliveryRow]:
        with self.database.read() as session:
            return list(session.exec(select(DeliveryRow).order_by(col(DeliveryRow.id))))

    def attempts(self) -> list[AttemptRow]:
        with self.database.read() as session:
            return list(session.exec(select(AttemptRow).order_by(col(AttemptRow.id))))

    def of_notifier(self, name: str) -> NotifierRow:
        with self.database.read() as session:
            return notifiers.by_name(session, name)

    def happened(self, kind: EventType) -> list[EventRow]:
        with self.database.read() as session:
            return list(session.exec(select(EventRow).where(EventRow.type == kind).order_by(col(EventRow.id))))
