"""The trace that a worker process leaves as long as it lives, idle or not."""

from __future__ import annotations

from importlib.metadata import version
from types import TracebackType
from typing import Self

import structlog
from sqlalchemy.exc import SQLAlchemyError

from service.store import workers
from workers.beat import Beat
from workers.worker import Worker

log = structlog.get_logger()


class Presence(Beat):
    """`with` shows the process in the table of workers, and takes it out at the end."""

    def __init__(self, worker: Worker, host_id: int) -> None:
        super().__init__("presence", worker.heartbeat_s)
        self._database, self._host_id, self._owner = worker.database, host_id, worker.owner
        self._version = version("expctl")

    def beat(self) -> bool:
        """Show it."""
        try:
            with self._database.write() as session:
                workers.beat(session, self._host_id, self._owner, self._version)
        except SQLAlchemyError as error:
            # It is missed after a few beats only; the next one tries again.
            log.warning("this worker could not be shown", error=str(error))
        return True

    def __enter__(self) -> Self:
        self.beat()
        return super().__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        super().__exit__(kind, error, trace)
        try:
            with self._database.write() as session:
                workers.leave(session, self._host_id, self._owner)
        except SQLAlchemyError as failed:
            log.warning("this worker could not be taken out; it will be once it has not been seen for long", error=str(failed))
