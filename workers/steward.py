"""The ticking things that belong to no host. Today: the alarm for a worker that fell silent."""

from __future__ import annotations

import threading

import structlog
from sqlalchemy.exc import SQLAlchemyError

from service.domain.events import EventType
from service.store import events, hosts
from service.store.database import Database

log = structlog.get_logger()

TICK_S = 5.0


def tick(database: Database) -> None:
    """Tell once when a lease ran out unreturned, and once when its host is worked on again."""
    with database.write() as session:
        silent = {row.id for row in hosts.silent(session)}
        for row in hosts.every(session):
            now_silent = row.id in silent
            if now_silent != row.worker_silent:
                kind = EventType.WORKER_SILENT if now_silent else EventType.WORKER_BACK
                events.emit(session, kind, "steward", host=row.name, data={"worker": row.lease_owner})
                row.worker_silent = now_silent
                session.add(row)


def run(database: Database, stop: threading.Event) -> None:
    """Tick until asked to stop."""
    while not stop.is_set():
        try:
            tick(database)
        except SQLAlchemyError as error:
            log.warning("database error", error=str(error))
        stop.wait(TICK_S)
