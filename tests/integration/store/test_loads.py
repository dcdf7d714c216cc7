"""Several loads of one configuration, and baselines that are loaded once more: what is queued, what it waits for, what replaces it."""

from __future__ import annotations

from typing import Any

import pytest
from sqlmodel import Session

from service.domain.errors import Conflict, NotReady, SpecError
from service.domain.reasons import Reason
from service.domain.spec import Spec
from service.domain.status import Outcome, Status
from service.store import experiments, forecast, history, hosts, shifts, steering, submission, telling
from service.store.database import Database
from service.store.tables import DurationRow, ExperimentRow, utc_now


@pytest.fixture(autouse=True)
def _host(host: str) -> None:
    """Every test has one."""


def spec(name: str = "x", *, model: str = "m", **more: Any) -> Spec:
    return Spec.model_validate({"name": name, "engine": {"kind": "vllm", "model": model}, **more})


BASE = spec("base", repeat_load=2)
CANDIDATE = spec("ngram", model="n", baseline="base", recheck_baseline=True)


def submit(session: Session, *specs: Spec, again: bool = True) -> list[ExperimentRow]:
    return [one.row for one in submission.submit_all(session, list(specs), "me", again=again)]


def ended(session: Session, row: ExperimentRow, outcome: Outcome = Outcome.SUCCEEDED) -> None:
    """As if a worker had brought it to an end."""
    if outcome != Outcome.SUCCEEDED:
        experiments.end(session, row, outcome, Reason.ENGINE_DEAD, "", "w")
        session.refresh(row)
        return
    row.status, row.outcome, row.finished_at = Status.FINISHED, outcome, utc_now()
    session.add(row)
    session.flush()


def after(session: Session, row: ExperimentRow) -> list[int]:
    return steering.dependencies(session, row.id or 0)


def test_each_load_is_an_experiment_of_one_group_in_order(database: Database) -> None:
    with database.write() as session:
        rows = submit(session, spec(repeat_load=3), spec("alone"))
        assert [(row.name, row.load, row.load_of, row.rank) for row in rows] == [
            ("x", 1, None, 1.0), ("x", 2, 1, 2.0), ("x", 3, 1, 3.0), ("alone", 1, None, 4.0)
        ]  # fmt: skip
        assert len({row.group_id for row in rows} - {None}) == 1
        assert len({(row.engine_hash, row.bench_hash, row.spec_hash) for row in rows[:3]}) == 1
        assert [submit(session, spec())[0].group_id, submit(session, spec(repeat_load=1))[0].group_id] == [None, None]
        assert submit(session, spec(repeat_load=2))[0].group_id is not None


def test_a_baseline_comes_once_more_after_all_its_candidates(database: Database) -> None:
    other = spec("eagle", model="e", baseline="base", recheck_baseline=True, repeat_load=2, priority=-5, notify=[])
    with database.write() as session:
        rows = submit(session, BASE, CANDIDATE, other)
        *_, again = rows
        assert [row.name for row in rows] == ["base", "base", "ngram", "eagle", "eagle", "base"]
        assert (again.recheck_of, again.baseline_id, again.priority, again.load_of) == (1, 1, -5, None)
        assert after(session, again) == [3, 4, 5]
        assert (again.engine_hash, again.bench_hash) == (rows[0].engine_hash, rows[0].bench_hash)
        assert (again.spec["repeat_load"], again.spec["recheck_baseline"], again.spec["baseline"]) == (1, False, None)
        assert [row.baseline_id for row in rows[2:5]] == [1, 1, 1]
        assert experiments.named(session, "base") == rows[1], "the name still means the baseline itself"


@pytest.mark.parametrize("named", ["id", "name", "pin"])
def test_a_baseline_of_before_is_found(database: Database, named: str) -> None:
    with database.write() as session:
        [base] = submit(session, spec("base"))
        ended(session, base)
        submit(session, spec("base"))
        if named == "pin":
            steering.pin_baseline(session, base.id or 0, "me")
        baseline = {"id": base.id, "name": "base", "pin": None}[named]
        _, again = submit(session, spec("ngram", baseline=baseline, recheck_baseline=True, bench={"repeat": 9}))
        assert (again.recheck_of, after(session, again)) == (base.id, [3])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "recheck_baseline: there is no baseline"),
        ({"baseline": "nobody"}, "baseline nobody does not exist"),
        ({"baseline": 99}, "baseline 99 does not exist"),
        ({"baseline": "endpoint"}, "cannot be loaded again"),
        ({"baseline": "elsewhere"}, "ran on host other"),
        ({"baseline": "shorter"}, "measures something else"),
        ({"baseline": "broken"}, "has ended failed"),
        ({"baseline": "x"}, "is the experiment itself"),
    ],
)
def test_a_baseline_that_could_tell_nothing_is_refused_now(database: Database, changes: dict[str, Any], told: str) -> None:
    with database.write() as session:
        hosts.register(session, "other", "local", {})
        endpoint = Spec.model_validate({"name": "endpoint", "engine": {"kind": "endpoint", "base_url": "http://127.0.0.1:1/v1"}})
        *_, broken = submit(session, endpoint, spec("elsewhere", host="other"), spec("shorter", bench={"max_tokens": 5}), spec("broken"))
        ended(session, broken, Outcome.FAILED)
        with pytest.raises(SpecError) as found:
            submit(session, spec(recheck_baseline=True, **changes))
    assert told in found.value.what
    assert found.value.todo


def test_messages_tell_loads_of_one_name_apart(database: Database) -> None:
    with database.write() as session:
        rows = submit(session, BASE, CANDIDATE)
        told = [telling.experiment_facts(session, row).name for row in rows]
    assert told == ["base (load 1 of 2)", "base (load 2 of 2)", "ngram", "base (baseline 1 again)"]


def test_a_name_that_stands_twice_is_no_baseline(database: Database) -> None:
    with database.write() as session, pytest.raises(SpecError, match="baseline base is ambiguous"):
        submit(session, BASE, BASE, CANDIDATE)


def test_after_a_name_means_after_every_load_of_it(database: Database) -> None:
    with database.write() as session:
        *_, one = submit(session, BASE, spec("later", after=["base"]))
        [two] = submit(session, spec("later still", after=["base"]))
        [three] = submit(session, spec("by id", after=[2]))
        assert [after(session, row) for row in (one, two, three)] == [[1, 2], [1, 2], [2]]
        ended(session, experiments.get(session, 2), Outcome.FAILED)
        with pytest.raises(SpecError, match="after: base has ended failed"):
            submit(session, spec("too late", after=["base"]))
        tried = steering.retry(session, 2, "me")
        assert after(session, submit(session, spec("now", after=["base"]))[0]) == [1, tried.id]


def test_a_retry_waits_for_what_the_first_waited_for_or_for_its_retry(database: Database) -> None:
    with database.write() as session:
        [one] = submit(session, spec("one"))
        [two] = submit(session, spec("two", after=["one"]))
        ended(session, one, Outcome.FAILED)
        session.refresh(two)
        assert two.reason == Reason.DEPENDENCY_FAILED
        with pytest.raises(Conflict, match=r"could never run; it comes after 1 one, which has ended failed; retry 1 first"):
            steering.retry(session, two.id or 0, "me")
        tried = steering.retry(session, one.id or 0, "me")
        again = steering.retry(session, two.id or 0, "me")
        assert (after(session, again), again.spec["after"]) == ([tried.id], ["one"])


def test_a_command_is_run_again_whatever_it_did_before(database: Database) -> None:
    with database.write() as session:
        train = Spec.model_validate({"name": "train", "engine": {"kind": "command", "run": ["x"]}})
        [one] = submit(session, train)
        ended(session, one)
        assert [row.id for row in submit(session, train, again=False)] == [2]
        with pytest.raises(NotReady, match="a command measures nothing"):
            steering.pin_baseline(session, one.id or 0, "me")


def test_the_baseline_comes_again_as_long_as_one_candidate_is_left(database: Database) -> None:
    with database.write() as session:
        *_, one, two, again = submit(session, spec("base"), CANDIDATE, spec("eagle", model="e", baseline="base", recheck_baseline=True))
        ended(session, one, Outcome.FAILED)
        assert (experiments.get(session, again.id or 0).status, after(session, again)) == (Status.QUEUED, [two.id])
        ended(session, two, Outcome.FAILED)
        session.refresh(again)
        assert (again.outcome, again.reason) == (Outcome.FAILED, Reason.DEPENDENCY_FAILED)
        with pytest.raises(Conflict, match="would have nothing to tell"):
            steering.retry(session, again.id or 0, "me")
        tried = steering.retry(session, two.id or 0, "me")
        last = steering.retry(session, again.id or 0, "me")
        assert (last.recheck_of, last.retry_of, after(session, last)) == (1, again.id, [tried.id])


def test_a_retry_repeats_one_load_alone(database: Database) -> None:
    with database.write() as session:
        first, second = submit(session, BASE)
        ended(session, first)
        ended(session, second, Outcome.FAILED)
        replaced = steering.retry(session, second.id or 0, "me")
        assert (replaced.load, replaced.load_of, replaced.group_id, replaced.spec["repeat_load"]) == (2, 1, first.group_id, 2)
        another = steering.retry(session, first.id or 0, "me")
        assert (another.load, another.load_of, another.group_id, another.spec["repeat_load"]) == (1, None, None, 1)


@pytest.mark.parametrize(("reason", "left"), [(Reason.BAD_ARGUMENTS, 0), (Reason.KV_CACHE_TOO_SMALL, 0), (Reason.ENGINE_DEAD, 2)])
def test_what_lies_in_the_configuration_is_seen_once(database: Database, reason: Reason, left: int) -> None:
    with database.write() as session:
        rows = submit(session, spec(repeat_load=3), spec("other"))
        lease = hosts.claim(session, "local", "w", 60.0)
        assert lease is not None
        taken = experiments.take_next(session, lease, shifts.open_or_resume(session, lease).id or 0)
        assert taken is not None
        experiments.finish(session, lease, 1, Outcome.FAILED, reason, "", "")
        for row in rows:
            session.refresh(row)
        assert [row.status for row in rows].count(Status.QUEUED) == left + 1
        assert rows[3].status == Status.QUEUED
        if not left:
            assert (rows[2].reason, rows[2].outcome) == (Reason.DEPENDENCY_FAILED, Outcome.FAILED)
            assert rows[2].detail.startswith("experiment 1, a load of the same configuration, did not succeed: ")


def test_what_was_measured_already_is_as_many_loads(database: Database) -> None:
    specs = (BASE, CANDIDATE)
    with database.write() as session:
        rows = submit(session, *specs, again=False)
        assert len(rows) == 4, "loads of one submission are not duplicates of one another"
        for row in rows[:3]:
            ended(session, row)
        made = submission.submit_all(session, list(specs), "me", again=False)
        assert [(one.row.id, one.measured_already) for one in made] == [(1, True), (2, True), (3, True), (4, True)]
        assert [row.id for row in submit(session, *specs)] == [5, 6, 7, 8], "asked for again, all of it is done again"
        assert [row.id for row in submit(session, spec("base", repeat_load=3), again=False)] == [9, 10, 11], "two are not three"
        assert [row.id for row in submit(session, spec("base"), again=False)] == [2]


def test_a_recheck_may_be_asked_for_later(database: Database) -> None:
    with database.write() as session:
        for row in submit(session, spec("base"), spec("ngram", model="n", baseline="base")):
            ended(session, row)
        made = submission.submit_all(session, [CANDIDATE], "me", again=False)
        assert [(one.row.id, one.measured_already) for one in made] == [(2, True), (3, False)]
        assert (made[1].row.recheck_of, after(session, made[1].row)) == (1, [2])
        ended(session, made[1].row, Outcome.FAILED)
        assert [row.id for row in submit(session, CANDIDATE, again=False)] == [2, 4], "one that failed has shown nothing"


def test_each_load_is_foreseen_on_its_own(database: Database) -> None:
    """A load is an experiment, so a queue of three lasts three times as long, without anything being said about it."""
    with database.write() as session:
        rows = submit(session, spec(repeat_load=3))
        for half, seconds in ((history.READY, 600.0), (history.BENCH, 300.0)):
            of = {"engine_hash": rows[0].engine_hash, "bench_hash": rows[0].bench_hash if half == history.BENCH else ""}
            more = {"engine_kind": "vllm", "served_model": "m", "experiment_id": 1, "attempt": 1}
            session.add(DurationRow(host_id=1, part=half, seconds=seconds, repeat=5 if half == history.BENCH else None, **of, **more))
        session.flush()
        now = utc_now()
        night = forecast.night(session, "local", now)
        ends = [slot.ends_at for row in rows if (slot := night.slot(row.id or 0)) is not None]
        known = [(one - now).total_seconds() for one in ends if one is not None]
    assert known == [pytest.approx(900 * (number + 1), rel=0.02) for number in range(3)]
