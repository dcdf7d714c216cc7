from __future__ import annotations

import threading

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from service.domain.errors import ClaimLost, Conflict
from service.domain.reasons import Reason
from service.domain.spec import Spec
from service.domain.status import Outcome, Status
from service.store import events, experiments, hosts, shifts, submission
from service.store.database import Database
from service.store.hosts import Lease


def spec(name: str = "x", **more: object) -> Spec:
    return Spec.model_validate({"name": name, "host": "local", "engine": {"kind": "vllm", "model": "m"}, **more})


@pytest.fixture(autouse=True)
def _host(database: Database) -> None:
    with database.write() as session:
        hosts.register(session, "local", "local", {})


def claim(database: Database, owner: str = "a", lease_s: float = 60.0) -> Lease:
    with database.write() as session:
        lease = hosts.claim(session, "local", owner, lease_s)
    assert lease is not None
    return lease


def submit(database: Database, *specs: Spec) -> list[int]:
    with database.write() as session:
        return [submission.submit(session, one, "me").id or 0 for one in specs]


def take(database: Database, lease: Lease) -> tuple[int, bool] | None:
    with database.write() as session:
        shift = shifts.open_or_resume(session, lease)
        taken = experiments.take_next(session, lease, shift.id or 0)
        return None if taken is None else (taken[0].id or 0, taken[1])


def expire(database: Database) -> None:
    with database.write() as session:
        session.execute(text("UPDATE hosts SET lease_expires = lease_expires - 100000"))


def test_one_lease_at_a_time_and_the_fence_grows(database: Database) -> None:
    first = claim(database)
    with database.write() as session:
        assert hosts.claim(session, "local", "b") is None
    with database.write() as session:
        hosts.release(session, first)
    assert claim(database, "b").fence == first.fence + 1


def test_an_expired_lease_is_taken_over_and_its_holder_can_write_nothing(database: Database) -> None:
    submit(database, spec())
    old = claim(database)
    assert take(database, old) == (1, False)
    expire(database)
    new = claim(database, "b")
    assert take(database, new) == (1, True)
    for write in (
        lambda session: hosts.heartbeat(session, old),
        lambda session: hosts.guard(session, old),
        lambda session: experiments.finish(session, old, 1, Outcome.SUCCEEDED, None, "", ""),
        lambda session: experiments.note_progress(session, old, 1, {"x": 1}),
    ):
        with pytest.raises(ClaimLost), database.write() as session:
            write(session)
    with database.read() as session:
        row = experiments.get(session, 1)
        assert (row.status, row.fence, row.recoveries, row.progress) == (Status.RUNNING, new.fence, 1, {})


def test_an_expired_lease_that_nobody_took_is_still_ours_after_a_heartbeat(database: Database) -> None:
    lease = claim(database)
    expire(database)
    with pytest.raises(ClaimLost), database.write() as session:
        hosts.guard(session, lease)
    with database.write() as session:
        hosts.heartbeat(session, lease)
        hosts.guard(session, lease)


def test_releasing_an_old_lease_leaves_the_new_one_alone(database: Database) -> None:
    old = claim(database)
    expire(database)
    new = claim(database, "b")
    with database.write() as session:
        hosts.release(session, old)
        hosts.guard(session, new)


def test_priority_then_age_decides(database: Database) -> None:
    submit(database, spec("a"), spec("b", priority=5), spec("c", priority=5), spec("d", priority=-1))
    lease = claim(database)
    order = []
    while (taken := take(database, lease)) is not None:
        order.append(taken[0])
        with database.write() as session:
            experiments.finish(session, lease, taken[0], Outcome.SUCCEEDED, None, "", "")
    assert order == [2, 3, 1, 4]


def test_what_is_active_comes_before_what_waits(database: Database) -> None:
    submit(database, spec("a"), spec("b", priority=9))
    lease = claim(database)
    assert take(database, lease) == (2, False)
    assert take(database, lease) == (2, False)


def test_the_database_itself_forbids_two_active_experiments_on_a_host(database: Database) -> None:
    submit(database, spec("a"), spec("b"))
    with pytest.raises(IntegrityError), database.write() as session:
        session.execute(text("UPDATE experiments SET status = 'running'"))


@pytest.mark.parametrize(
    "change",
    [
        "status = 'finished'",
        "outcome = 'succeeded'",
        "status = 'finished', outcome = 'failed', finished_at = '2026-01-01'",
        "status = 'nonsense'",
    ],
)
def test_the_database_itself_forbids_rows_that_contradict_themselves(database: Database, change: str) -> None:
    submit(database, spec())
    with pytest.raises(IntegrityError), database.write() as session:
        session.execute(text(f"UPDATE experiments SET {change}"))  # noqa: S608 - fixed texts above


def test_cancel_ends_a_waiting_one_at_once_and_asks_for_a_running_one(database: Database) -> None:
    submit(database, spec("a"), spec("b"))
    lease = claim(database)
    take(database, lease)
    with database.write() as session:
        assert experiments.cancel(session, 1, "me").status == Status.STOPPING
        waiting = experiments.cancel(session, 2, "me")
        assert (waiting.status, waiting.outcome, waiting.reason) == (Status.FINISHED, Outcome.CANCELLED, Reason.CANCELLED_BY_USER)
    with pytest.raises(Conflict), database.write() as session:
        experiments.cancel(session, 2, "me")
    with database.write() as session:
        experiments.finish(session, lease, 1, Outcome.CANCELLED, Reason.CANCELLED_BY_USER, "", "")
    with database.read() as session:
        kinds = [event.type.value for event in events.since(session, experiment_id=1)]
    assert kinds == ["experiment.submitted", "experiment.started", "experiment.cancel_requested", "experiment.finished"]


def test_a_retry_follows_the_rule_of_the_reason(database: Database) -> None:
    submit(database, spec())
    lease = claim(database)
    take(database, lease)
    with database.write() as session:
        assert not experiments.requeue(session, lease, 1, Reason.BAD_ARGUMENTS, "")
        assert experiments.requeue(session, lease, 1, Reason.GPU_MEMORY_NOT_FREE_AT_START, "held")
    assert take(database, lease) is None, "its wait is not over"
    with database.write() as session:
        session.execute(text("UPDATE experiments SET not_before = NULL"))
    assert take(database, lease) == (1, False)
    with database.write() as session:
        assert not experiments.requeue(session, lease, 1, Reason.GPU_MEMORY_NOT_FREE_AT_START, "held")
        assert experiments.get(session, 1).attempt == 2


def test_many_claimers_get_one_lease(database: Database) -> None:
    won: list[str] = []

    def contend(owner: str) -> None:
        with database.write() as session:
            if hosts.claim(session, "local", owner) is not None:
                won.append(owner)

    threads = [threading.Thread(target=contend, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
