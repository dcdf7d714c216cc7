"""The polling door to a shift: looks into the database every second, without any broker."""

from __future__ import annotations

from datetime import UTC, datetime

import structlog
from sqlalchemy.exc import SQLAlchemyError

from service.domain.errors import ClaimLost
from service.store import agenda, migrate
from workers.hosts.base import HostError
from workers.shift import run_shift
from workers.worker import Worker

log = structlog.get_logger()

POLL_S = 0.5
OUTDATED_S = 5.0
HOST_PAUSE_S = 5.0


def work(worker: Worker, host: str) -> None:
    """Run shifts on a host as long as nobody asks to stop."""
    head = migrate.head()
    while not worker.stop.is_set():
        try:
            with worker.database.read() as session:
                # Another version has migrated the database: its tables may mean something else by now.
                current = migrate.current_of(session) == head
                due = current and agenda.of(session, host, datetime.now(UTC)).anything
            if not current:
                log.warning("the database is at another migration; claiming nothing", host=host, needed=head)
                worker.stop.wait(OUTDATED_S)
            if due:
                run_shift(worker, host)
        except ClaimLost as lost:
            log.warning("claim lost", host=host, why=str(lost))
        except HostError as error:
            # Outside of any experiment: what is promised to the host is kept as soon as it can be worked with again.
            log.warning("the host cannot be worked with", host=host, reason=error.reason, why=error.evidence)
            worker.stop.wait(HOST_PAUSE_S)
        except SQLAlchemyError as error:
            # What runs on the host goes on; it is adopted as soon as the database answers again.
            log.warning("database error", host=host, error=str(error))
        worker.stop.wait(POLL_S)
