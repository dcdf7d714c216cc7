"""The loop of a worker process: look into the database, run what is due, wait until the next look.

With a broker a message shortens the wait. Nothing else hangs on it: a night goes on without any message, a few seconds later.
"""

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
"""Between two looks where nobody sends messages."""
UNWOKEN_S = 4.0
"""Between two looks where somebody does: what a lost message costs at most."""
OUTDATED_S = 5.0
HOST_PAUSE_S = 5.0


def work(worker: Worker, host: str, patience_s: float = POLL_S) -> None:
    """Run what is due on a host whenever something is, as long as nobody asks to stop. `patience_s`: between two looks."""
    head = migrate.head()
    while not worker.stop.is_set():
        # Before the look: a message that comes during it is about something that it may not have seen.
        worker.woken.clear()
        pause_s = run_due(worker, host, head)
        if not worker.stop.is_set():
            worker.woken.wait(patience_s if pause_s is None else pause_s)


def run_due(worker: Worker, host: str, head: str) -> float | None:
    """Run what is due on a host now. In how many seconds to look again; None where nothing calls for it. `head`: the migration needed.

    Where another worker holds the host, nothing is done.
    """
    try:
        with worker.database.read() as session:
            # Another version has migrated the database: its tables may mean something else by now.
            current = migrate.current_of(session) == head
            due = current and agenda.of(session, host, datetime.now(UTC)).anything
        if not current:
            log.warning("the database is at another migration; claiming nothing", host=host, needed=head)
            return OUTDATED_S
        if due and run_shift(worker, host):
            return POLL_S
    except ClaimLost as lost:
        log.warning("claim lost", host=host, why=str(lost))
        return POLL_S
    except HostError as error:
        # Outside of any experiment: what is promised to the host is kept as soon as it can be worked with again.
        log.warning("the host cannot be worked with", host=host, reason=error.reason, why=error.evidence)
        return HOST_PAUSE_S
    except SQLAlchemyError as error:
        # What runs on the host goes on; it is adopted as soon as the database answers again.
        log.warning("database error", host=host, error=str(error))
        return POLL_S
    return None
