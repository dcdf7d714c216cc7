"""A recorder at work, and a clock to turn by hand."""

from __future__ import annotations

import threading

from service.domain.status import StepName
from service.store import steps
from service.store.database import Database
from service.store.tables import StepRow
from tests.integration.workers.night import claim, submit, take, take_over
from workers.heart import Heart
from workers.recorder import StoreRecorder


class Rig:
    """A recorder at work on an experiment that was just taken."""

    def __init__(self, database: Database, owner: str = "first") -> None:
        self.database = database
        self.id = submit(database)
        self.lease = claim(database, owner)
        take(database, self.lease)
        self.stop = threading.Event()
        self.heart = Heart(database, self.lease)
        self.recorder = self.again()

    def again(self, attempt: int = 1) -> StoreRecorder:
        return StoreRecorder(self.database, self.lease, self.heart, self.stop, self.id, attempt)

    def after_takeover(self) -> StoreRecorder:
        lease = take_over(self.database)
        return StoreRecorder(self.database, lease, Heart(self.database, lease), threading.Event(), self.id, 1)

    def log(self) -> list[str]:
        with self.database.read() as session:
            return [piece.text for piece in steps.log_after(session, self.id)]

    def step(self, name: StepName) -> StepRow:
        with self.database.read() as session:
            row = steps.find(session, self.id, 1, name)
        assert row is not None
        return row


class Hands:
    """A clock to turn by hand, in place of the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now
