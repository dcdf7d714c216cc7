from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta

import pytest

from service.domain.errors import ClaimLost, UsageError
from service.domain.events import EventType
from service.domain.reasons import RULES, Reason
from service.domain.spec import Spec
from service.domain.status import Outcome, Status
from service.store import events, experiments, hosts, results, retention, steps
from service.store.database import Database
from service.store.tables import HostRow, utc_now
from tests.integration.workers.night import Night, claim, read, submit, take_over
from workers import experiment, shift
from workers.hosts.gpu_reading import GpuMemory, GpuReading

Look = Callable[[], bool]


def host_row(database: Database) -> HostRow:
    with database.read() as session:
        return hosts.by_name(session, "local")


def told(database: Database, *kinds: EventType) -> list[tuple[str, object]]:
    with database.read() as session:
        return [(one.type.value, one.experiment_id) for one in events.since(session) if one.type in kinds]


def ending(database: Database, experiment_id: int) -> tuple[str, str | None, str | None]:
    row = read(database, experiment_id)
    return (row.status, row.outcome, row.reason)


SUCCEEDED = (Status.FINISHED, Outcome.SUCCEEDED, None)


def test_everything_due_runs_in_order_and_the_host_is_handed_back(database: Database, night: Night) -> None:
    for name, priority in (("a", 0), ("b", 5), ("c", 0)):
        submit(database, name, priority=priority)
    assert night.work()
    assert night.measured == ["b", "a", "c"]
    assert [ending(database, number) for number in (1, 2, 3)] == [SUCCEEDED] * 3
    assert night.host.alive() == []
    row = host_row(database)
    assert (row.lease_owner, row.lease_token, row.lease_expires) == (None, None, None)
    experiment = (EventType.EXPERIMENT_STARTED, EventType.EXPERIMENT_FINISHED)
    assert told(database, EventType.SHIFT_OPENED, *experiment, EventType.SHIFT_CLOSED, EventType.QUEUE_DRAINED) == [
        ("shift.opened", None),
        ("experiment.started", 2), ("experiment.finished", 2),
        ("experiment.started", 1), ("experiment.finished", 1),
        ("experiment.started", 3), ("experiment.finished", 3),
        ("shift.closed", None),
        ("queue.drained", None),
    ]  # fmt: skip


def test_a_datums_whole_way(database: Database, night: Night) -> None:
    submit(database)
    night.host.scripts["expctl-1-x"] = [
        lambda: (night.host.say("expctl-1-x", "PHASE weights_loading 1/2"), night.host.listen("expctl-1-x", 8001))
    ]
    night.work()
    row = read(database, 1)
    assert row.facts["served_model"] == "m"
    assert row.facts["loop_lag_ms_p99@1"] == 1.0
    with database.read() as session:
        assert [step.name for step in steps.every(session, 1) if step.finished_at] == [
            "clear", "launch", "load", "warm", "measure", "collect",
        ]  # fmt: skip
        [phase] = results.phases(session, 1, 1)
        assert phase.requests[0].tps == 50.0
        assert [piece.text for piece in steps.log_after(session, 1)] == ["PHASE weights_loading 1/2"]


def test_one_failure_does_not_end_the_night(database: Database, night: Night) -> None:
    for name in ("a", "b", "c"):
        submit(database, name)
    night.host.scripts["expctl-2-b"] = [night.host.die("expctl-2-b", "FATAL bad_arguments no such flag --x")]
    night.work()
    assert [ending(database, number) for number in (1, 2, 3)] == [
        SUCCEEDED, (Status.FINISHED, Outcome.FAILED, Reason.BAD_ARGUMENTS), SUCCEEDED,
    ]  # fmt: skip
    row = read(database, 2)
    assert (row.step, row.evidence) == ("load", "no such flag --x")


@pytest.mark.parametrize("error", [KeyError("x"), OSError("x")])
def test_our_own_mistake_ends_that_experiment_only_and_stops_its_engine(database: Database, night: Night, error: Exception) -> None:
    def break_b(spec: Spec, _look: Look) -> None:
        if spec.name == "b":
            raise error

    for name in ("a", "b", "c"):
        submit(database, name)
    night.meanwhile = break_b
    night.work()
    assert [ending(database, number) for number in (1, 2, 3)] == [
        SUCCEEDED, (Status.FINISHED, Outcome.FAILED, Reason.INTERNAL_ERROR), SUCCEEDED,
    ]  # fmt: skip
    row = read(database, 2)
    assert row.detail == f"{type(error).__name__}: {error}"
    assert row.evidence.startswith("test_shift.py:"), "where it happened"
    assert night.host.alive() == []
    asked = night.host.calls
    assert asked.index(("stop_unit", "expctl-2-b")) < asked.index(("unit", "expctl-3-c")), "and not by the next one's clearing"


def test_a_retry_follows_the_reasons_rule(database: Database, night: Night) -> None:
    submit(database)
    fails = night.host.die("expctl-1-x", "FATAL gpu_memory_not_free_at_start held")
    night.host.scripts["expctl-1-x"] = [fails]
    night.work_through()
    row = read(database, 1)
    assert (row.status, row.outcome, row.attempt) == (Status.FINISHED, Outcome.SUCCEEDED, 2)
    assert told(database, EventType.EXPERIMENT_REQUEUED) == [("experiment.requeued", 1)]
    with database.read() as session:
        assert [(step.attempt, step.name) for step in steps.every(session, 1)][:5] == [
            (1, "clear"), (1, "launch"), (1, "load"), (2, "clear"), (2, "launch"),
        ]  # fmt: skip
        assert [(piece.attempt, piece.text) for piece in steps.log_after(session, 1)] == [
            (1, "FATAL gpu_memory_not_free_at_start held"),
        ]  # fmt: skip


def test_a_retry_waits_as_long_as_the_rule_says_and_others_go_first(database: Database, night: Night) -> None:
    submit(database)
    submit(database, "next")
    night.host.scripts["expctl-1-x"] = [night.host.die("expctl-1-x", "FATAL memory_profiling_race it")]
    night.work()
    row = read(database, 1)
    assert (row.status, row.attempt) == (Status.QUEUED, 2)
    assert row.not_before is not None
    wait = (row.not_before - utc_now()).total_seconds()
    assert RULES[Reason.MEMORY_PROFILING_RACE].retry.after_s - 30 < wait <= RULES[Reason.MEMORY_PROFILING_RACE].retry.after_s
    assert ending(database, 2) == SUCCEEDED


@pytest.mark.parametrize("reason", [Reason.MEMORY_PROFILING_RACE, Reason.GPU_MEMORY_NOT_FREE_AT_START, Reason.CUDA_OUT_OF_MEMORY])
def test_no_more_often_than_the_rule_says(database: Database, night: Night, reason: Reason) -> None:
    submit(database)
    submit(database, "next")
    night.host.scripts["expctl-1-x"] = [night.host.die("expctl-1-x", f"FATAL {reason} it")] * 9
    night.work_through()
    row = read(database, 1)
    assert (row.outcome, row.reason, row.attempt) == (Outcome.FAILED, reason, 1 + RULES[reason].retry.times)
    assert ending(database, 2) == SUCCEEDED


def test_gpus_that_are_not_free_start_nothing(database: Database, night: Night) -> None:
    submit(database)
    night.host.gpu_reading = GpuReading(known=True, tool="t", gpus=(GpuMemory(0, "GPU-0", "card", 50_000, 97_000),))
    night.work()
    assert ending(database, 1) == (Status.FINISHED, Outcome.FAILED, Reason.HELD_BY_UNKNOWN_PROCESS)
    assert night.host.definitions == {}


def test_a_host_that_another_holds_is_left_alone(database: Database, night: Night) -> None:
    submit(database)
    other = claim(database, "other")
    assert not night.work()
    assert night.host.calls == []
    with database.read() as session:
        assert hosts.holds(session, other)


def test_cancel_ends_the_running_one_and_the_night_goes_on(database: Database, night: Night) -> None:
    def cancel_a(spec: Spec, look: Look) -> None:
        if spec.name == "a":
            with database.write() as session:
                experiments.cancel(session, 1, "me")
            while True:
                look()

    submit(database, "a")
    submit(database, "b")
    night.meanwhile = cancel_a
    night.work()
    assert ending(database, 1) == (Status.FINISHED, Outcome.CANCELLED, Reason.CANCELLED_BY_USER)
    assert ending(database, 2) == SUCCEEDED
    assert night.host.alive() == []


def test_who_is_asked_to_go_leaves_the_engine_to_the_next(database: Database, night: Night) -> None:
    def leave(_spec: Spec, look: Look) -> None:
        if not night.stop.is_set() and len(night.measured) == 1:
            night.stop.set()
            look()

    submit(database)
    submit(database, "waits")
    night.meanwhile = leave
    assert night.work()
    assert ending(database, 1) == (Status.RUNNING, None, None)
    assert ending(database, 2) == (Status.QUEUED, None, None)
    assert night.host.alive() == ["expctl-1-x"]
    assert host_row(database).lease_token is None, "handed back at once, not left to run out"
    before = night.host.unit("expctl-1-x")

    night.stop.clear()
    night.host.calls.clear()
    assert night.work("second")
    assert [ending(database, 1), ending(database, 2)] == [SUCCEEDED, SUCCEEDED]
    assert ("start_unit", "expctl-1-x") not in night.host.calls
    assert read(database, 1).recoveries == 1
    with database.read() as session:
        launched = steps.find(session, 1, 1, steps.StepName.LAUNCH)
        assert launched is not None
        assert launched.invocation_id == before.invocation_id
        assert len(results.phases(session, 1, 1)) == 1, "the cut one counts no more"
    assert len(told(database, EventType.SHIFT_OPENED)) == 1, "the same shift goes on"


def test_a_server_restarted_between_two_workers_is_found_out(database: Database, night: Night) -> None:
    def leave(_spec: Spec, look: Look) -> None:
        night.stop.set()
        look()

    submit(database)
    night.meanwhile = leave
    night.work()
    night.host.end("expctl-1-x")
    night.host.start_unit(night.host.definitions["expctl-1-x"])
    night.stop.clear()
    night.work("second")
    assert ending(database, 1) == (Status.FINISHED, Outcome.INVALID, Reason.SERVER_RESTARTED_DURING_RUN)
    assert night.host.alive() == []


def test_who_lost_the_claim_touches_nothing_any_more(database: Database, night: Night) -> None:
    def lose(_spec: Spec, look: Look) -> None:
        night.new = take_over(database)  # type: ignore[attr-defined]
        while True:
            look()

    submit(database)
    night.meanwhile = lose
    with pytest.raises(ClaimLost):
        night.work()
    assert night.host.alive() == ["expctl-1-x"]
    assert ending(database, 1) == (Status.RUNNING, None, None)
    with database.read() as session:
        assert hosts.holds(session, night.new), "the other's lease stays"  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt()])
def test_the_lease_is_released_whatever_happens(
    database: Database, night: Night, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    submit(database)
    monkeypatch.setattr(shift.experiments, "take_next", broken)
    with pytest.raises(type(error)):
        night.work()
    assert host_row(database).lease_token is None


def test_an_experiment_that_cannot_be_understood_does_not_end_the_night(
    database: Database, night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(spec: Spec, defaults: object, environ: object, base: object) -> object:
        if spec.name == "a":
            raise UsageError("VLLM_API_KEY is not set", "engine.api_key refers to it", "set it for the worker")
        return night.make_engine(spec, defaults, environ, base)

    submit(database, "a")
    submit(database, "b")
    monkeypatch.setattr(experiment, "make_engine", refuse)
    night.work()
    assert ending(database, 1) == (Status.FINISHED, Outcome.FAILED, Reason.BAD_ARGUMENTS)
    assert read(database, 1).evidence == "VLLM_API_KEY is not set"
    assert ending(database, 2) == SUCCEEDED


@pytest.mark.parametrize("error", [IndexError("x"), ZeroDivisionError("x"), ExceptionGroup("x", [ValueError("y")]), AssertionError("x")])
def test_every_mistake_of_ours_ends_that_experiment_only(database: Database, night: Night, error: Exception) -> None:
    def break_it(_spec: Spec, _look: Look) -> None:
        raise error

    submit(database)
    night.meanwhile = break_it
    with contextlib.suppress(type(error)):
        night.work()
    assert ending(database, 1) == (Status.FINISHED, Outcome.FAILED, Reason.INTERNAL_ERROR)
    assert night.host.alive() == []


def test_an_adopted_one_that_cannot_be_understood_leaves_no_engine(
    database: Database, night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> object:
        raise UsageError("VLLM_API_KEY is not set", "engine.api_key refers to it", "set it for the worker")

    def leave(_spec: Spec, look: Look) -> None:
        night.stop.set()
        look()

    submit(database)
    night.meanwhile = leave
    night.work()
    assert night.host.alive() == ["expctl-1-x"]
    night.stop.clear()
    monkeypatch.setattr(experiment, "make_engine", refuse)
    night.work("second")
    assert ending(database, 1) == (Status.FINISHED, Outcome.FAILED, Reason.BAD_ARGUMENTS)
    assert night.host.alive() == []


def test_an_attempt_that_starts_nothing_copies_no_log_of_the_one_before(database: Database, night: Night) -> None:
    def fail_and_hold() -> None:
        night.host.die("expctl-1-x", "FATAL gpu_memory_not_free_at_start held")()
        night.host.gpu_reading = GpuReading(known=True, tool="t", gpus=(GpuMemory(0, "GPU-0", "card", 50_000, 97_000),))

    submit(database)
    night.host.scripts["expctl-1-x"] = [fail_and_hold]
    night.work_through()
    assert ending(database, 1) == (Status.FINISHED, Outcome.FAILED, Reason.HELD_BY_UNKNOWN_PROCESS)
    with database.read() as session:
        assert [piece.attempt for piece in steps.log_after(session, 1)] == [1]


def test_what_is_kept_of_units_goes_with_what_was_pruned(database: Database, night: Night) -> None:
    night.meanwhile = lambda spec, look: (night.host.say(f"expctl-{len(night.measured)}-{spec.name}", "a line"), look())[0]
    submit(database, "a")
    submit(database, "b")
    night.work()
    assert sorted(night.host.states) == ["expctl-1-a", "expctl-2-b"]
    with database.write() as session:
        oldest, _ = retention.plan(session, older_than=timedelta(0), max_bytes=None)
        retention.prune(session, [oldest], "ann")
    submit(database, "c")
    night.work()
    assert sorted(night.host.states) == ["expctl-2-b", "expctl-3-c"]
