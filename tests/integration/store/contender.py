"""One of several worker processes that fight over the same hosts; see test_contention.py."""

from __future__ import annotations

import fcntl
import random
import threading
import traceback
from dataclasses import dataclass, field
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

from sqlmodel import Session, col, func, select

from service.domain.status import ACTIVE, Outcome, Status
from service.store import experiments, hosts, shifts
from service.store.database import Database
from service.store.hosts import Lease
from service.store.tables import ExperimentRow, HostRow


@dataclass
class Report:
    """What one process did and saw."""

    taken: list[int] = field(default_factory=list)
    fences: list[tuple[str, int]] = field(default_factory=list)
    refused: int = 0
    wrong: list[str] = field(default_factory=list)


def contend(url: str, names: list[str], number: int, folder: Path, start: Barrier, reports: Queue[Report]) -> None:
    """Claim a host, run one experiment of it, hand it back; until nothing waits anywhere."""
    report = Report()
    try:
        database = Database(url)
        with database.read() as session:  # connected before the start
            hosts.every(session)
        order, pause = random.Random(number), threading.Event()  # noqa: S311 - any order will do
        start.wait(30)
        while _left(database):
            name = order.choice(names)
            with database.write() as session:
                lease = hosts.claim(session, name, f"process-{number}")
            if lease is None:
                report.refused += 1
                pause.wait(0.02)
            else:
                _hold(database, lease, folder, report)
        database.close()
    except BaseException:  # noqa: BLE001 - told to the test
        report.wrong.append(traceback.format_exc())
    reports.put(report)


def _left(database: Database) -> bool:
    with database.read() as session:
        return session.exec(select(ExperimentRow.id).where(ExperimentRow.status != Status.FINISHED).limit(1)).first() is not None


def _hold(database: Database, lease: Lease, folder: Path, report: Report) -> None:
    report.fences.append((lease.host, lease.fence))
    # The witness is a file lock, which knows nothing of the database.
    with (folder / lease.host).open("w") as witness:
        try:
            fcntl.flock(witness, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report.wrong.append(f"{lease} beside another live holder")
        with database.write() as session:
            shift = shifts.open_or_resume(session, lease)
            taken = experiments.take_next(session, lease, shift.id or 0)
        if taken is not None:
            row, adopted = taken
            if adopted:
                report.wrong.append(f"{row.id} was left behind by another holder")
            report.taken.append(row.id or 0)
            with database.read() as session:
                if (active := _active(session, lease.host)) != 1:
                    report.wrong.append(f"{active} active experiments on {lease.host}")
            with database.write() as session:
                experiments.finish(session, lease, row.id or 0, Outcome.SUCCEEDED, None, "", "")
    with database.write() as session:
        hosts.release(session, lease)


def _active(session: Session, host: str) -> int:
    query = select(func.count()).select_from(ExperimentRow).join(HostRow, col(HostRow.id) == ExperimentRow.host_id)
    return session.exec(query.where(HostRow.name == host, col(ExperimentRow.status).in_(list(ACTIVE)))).one()
