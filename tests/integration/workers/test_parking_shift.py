"""Shifts of a host that serves by day: the store is real, the host is in memory."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import update

from service.domain.events import EventType
from service.domain.reasons import Reason
from service.domain.status import Outcome, Status
from service.store import events, hosts, openings, shifts
from service.store.database import Database
from service.store.tables import DurationRow, ShiftRow, utc_now
from tests.integration.workers.night import Night, read, submit, submit_command
from tests.integration.workers.parking import PROD, closings, configure, due, serving_units, told, window
from workers.shift import _Shift
from workers.steps.base import HandOver


def test_a_night_in_order(database: Database, evening: Night) -> None:
    submit(database, "a")
    submit(database, "b")
    evening.work()
    assert evening.measured == ["a", "b"]
    assert serving_units(evening) == [PROD]
    assert told(database) == [
        EventType.SHIFT_OPENED,
        EventType.PRODUCTION_PARKED,
        EventType.EXPERIMENT_STARTED,
        EventType.EXPERIMENT_FINISHED,
        EventType.EXPERIMENT_STARTED,
        EventType.EXPERIMENT_FINISHED,
        EventType.PRODUCTION_RESTORED,
        EventType.SHIFT_CLOSED,
    ]
    assert not due(database)


@pytest.mark.parametrize("changes", [{"window": window(open_now=False)}, {"window": None}])
def test_by_day_nothing_is_stopped(database: Database, evening: Night, changes: dict[str, Any]) -> None:
    configure(database, **changes)
    submit(database)
    assert not due(database)
    evening.work()
    assert (serving_units(evening), evening.measured, told(database)) == ([PROD], [], [])


def test_an_admin_opens_one_shift_by_day(database: Database, evening: Night) -> None:
    configure(database, window=None)
    submit(database)
    with database.write() as session:
        openings.allow_opening(session, "local", "me")
    assert due(database)
    evening.work()
    assert (evening.measured, serving_units(evening)) == (["x"], [PROD])
    submit(database, "later")
    assert not due(database), "the permission was for one shift"


def test_an_endpoint_is_measured_before_anything_is_parked(database: Database, evening: Night) -> None:
    seen: list[list[str]] = []
    evening.meanwhile = lambda _spec, _look: seen.append(sorted(serving_units(evening)))
    submit(database, "unit")
    evening.engine.owns_process = True
    submit(database, "guest", engine={"kind": "endpoint", "base_url": "http://gpu0:8000"})
    make = evening.make_engine

    def made(spec: Any, defaults: Any, environ: Any, base: Any) -> Any:
        evening.engine.owns_process = spec.engine.kind != "endpoint"
        return make(spec, defaults, environ, base)

    evening.make_engine = made  # type: ignore[method-assign]
    pytest.MonkeyPatch().setattr("workers.experiment.make_engine", made)
    evening.work()
    assert evening.measured == ["guest", "unit"]
    assert seen == [[PROD], ["expctl-1-unit"]]


def test_an_experiment_that_fails_does_not_stop_the_night(database: Database, evening: Night) -> None:
    submit(database, "typo", engine={"kind": "vllm", "model": "m"})
    submit(database, "good")
    failing: Callable[..., None] = lambda spec, _look: evening.host.end(f"expctl-1-{spec.name}", 1) if spec.name == "typo" else None  # noqa: E731
    evening.meanwhile = failing
    evening.work()
    assert evening.measured == ["typo", "good"]
    assert (read(database, 1).outcome, read(database, 2).outcome) == (Outcome.FAILED, Outcome.SUCCEEDED)
    assert serving_units(evening) == [PROD]


def test_three_different_failures_in_a_row_trip(database: Database, evening: Night) -> None:
    for number in range(4):
        submit(database, f"x{number}", engine={"kind": "vllm", "model": f"m{number}"})
    evening.meanwhile = lambda spec, _look: evening.host.end(f"expctl-{len(evening.measured)}-{spec.name}", 1)
    evening.work()
    assert evening.measured == ["x0", "x1", "x2"]
    assert read(database, 4).status == Status.QUEUED
    assert EventType.SHIFT_TRIPPED in told(database)
    assert serving_units(evening) == [PROD]
    assert not due(database), "a person has to look first"


def test_the_same_failure_again_does_not_trip(database: Database, evening: Night) -> None:
    for number in range(4):
        submit(database, f"x{number}")
    evening.meanwhile = lambda spec, _look: evening.host.end(f"expctl-{len(evening.measured)}-{spec.name}", 1)
    evening.work()
    assert len(evening.measured) == 4


def test_folders_of_commands_go_when_the_shift_ends(database: Database, evening: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [submit_command(database, name) for name in ("train", "other")]
    monkeypatch.setattr("service.store.retention.work_is_over", lambda _session, _host, found: dict.fromkeys(found, "train"))
    evening.host.folders = {f"expctl-{ids[0]}-train", f"expctl-{ids[1]}-other", "expctl-77-train", "expctl-78-train"}
    evening.host.fail("remove_work_folder", Reason.PERMISSION_DENIED, "a link or a file")
    evening.work()
    assert evening.host.folders == {f"expctl-{ids[0]}-train", f"expctl-{ids[1]}-other"}, (
        "the first was refused, and another has another name"
    )


def test_a_clock_that_is_set_gives_nothing_back_early(database: Database, evening: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(database, close_after=600)
    submit(database)
    idle, hands, seen = _Shift._idle, SimpleNamespace(now=0.0), []
    monkeypatch.setattr("workers.shift.time", SimpleNamespace(monotonic=lambda: hands.now))
    monkeypatch.setattr("workers.shift.IDLE_POLL_S", 0.01)

    def looked(shift: _Shift) -> None:
        idle(shift)
        seen.append(shift.book.closing())
        with database.write() as session:
            session.execute(update(ShiftRow).values(idle_since=utc_now() - timedelta(hours=1)))
        hands.now += 300

    monkeypatch.setattr("workers.shift._Shift._idle", looked)
    evening.work()
    assert seen == [None, None, "nothing left to do"]


def test_give_back_ends_the_shift_now_and_queues_what_ran_again(database: Database, evening: Night) -> None:
    submit(database)

    def ask(_spec: Any, look: Callable[[], bool]) -> None:
        with database.write() as session:
            openings.ask_give_back(session, "local", "ann")
        look()

    evening.meanwhile = ask
    evening.work()
    row = read(database, 1)
    assert (row.status, row.attempt, row.detail) == (Status.QUEUED, 2, "ann wanted production back")
    assert (serving_units(evening), closings(database)) == ([PROD], ["ann wanted production back"])
    with database.read() as session:
        host = hosts.by_name(session, "local")
        assert (host.give_back_by, host.paused) == (None, True), "or it would be parked again at once"
    assert not due(database)


def test_pause_ends_the_shift_after_the_present_experiment(database: Database, evening: Night) -> None:
    submit(database, "a")
    submit(database, "b")

    def pause(_spec: Any, _look: Any) -> None:
        with database.write() as session:
            hosts.by_name(session, "local").paused = True

    evening.meanwhile = pause
    evening.work()
    assert (evening.measured, read(database, 2).status, serving_units(evening)) == (["a"], Status.QUEUED, [PROD])
    assert not due(database)
    with database.read() as session:
        assert EventType.QUEUE_DRAINED not in {event.type for event in events.since(session)}, "one still waits"


def test_production_started_by_hand_wins(database: Database, evening: Night) -> None:
    submit(database, "a")
    submit(database, "b")

    def by_hand(_spec: Any, _look: Any) -> None:
        evening.host.end("expctl-1-a", None, 15)
        evening.host.serve(PROD)

    evening.meanwhile = by_hand
    evening.work()
    row = read(database, 1)
    assert (row.outcome, row.reason) == (Outcome.FAILED, Reason.PRODUCTION_STARTED_BY_HAND)
    assert (evening.measured, serving_units(evening)) == (["a"], [PROD])
    with database.read() as session:
        assert "by_hand" in (hosts.by_name(session, "local").blocked or "")
    assert not due(database)


def test_a_power_cut_that_brings_production_back_is_accepted(database: Database, evening: Night) -> None:
    submit(database, "a")
    evening.meanwhile = lambda _spec, _look: evening.host.reboot(enabled=True)
    evening.work()
    row = read(database, 1)
    assert (row.status, row.attempt) == (Status.QUEUED, 2), "a reboot is no fault of the experiment"
    assert serving_units(evening) == [PROD]
    assert "rebooted" in (closings(database)[0] or "")
    with database.read() as session:
        assert hosts.by_name(session, "local").blocked is None


@pytest.mark.parametrize("lost", [False, True])
def test_a_host_that_gave_production_back_by_itself_is_not_blocked(database: Database, evening: Night, lost: bool) -> None:
    submit(database, "a")

    def cut_off(_spec: Any, _look: Any) -> None:
        evening.host.fire("2026-01-01T03:00:00Z")
        if lost:
            raise HandOver

    evening.meanwhile = cut_off
    evening.work()
    evening.work("second")
    row = read(database, 1)
    assert (row.status, row.attempt) == (Status.QUEUED, 2)
    assert "by itself at 2026-01-01T03:00:00Z" in row.detail
    assert (evening.measured, serving_units(evening), len(closings(database))) == (["a"], [PROD], 1)
    with database.read() as session:
        assert hosts.by_name(session, "local").blocked is None
        [restored] = [event for event in events.since(session) if event.type == EventType.PRODUCTION_RESTORED]
    assert "by itself" in restored.data["given_back_by_host"]


def test_a_host_that_rebooted_serves_again_before_anything_else_is_run(database: Database, evening: Night) -> None:
    submit(database, "a")
    submit(database, "b")
    evening.meanwhile = lambda _spec, _look: evening.host.reboot(enabled=False)
    evening.work()
    assert (evening.measured, serving_units(evening)) == (["a"], [PROD])
    assert [read(database, one).status for one in (1, 2)] == [Status.QUEUED, Status.QUEUED]


def test_the_window_s_end_gives_production_back_in_time(database: Database, evening: Night) -> None:
    submit(database, "a")

    def late(_spec: Any, look: Callable[[], bool]) -> None:
        configure(database, window=window(open_now=False))
        look()

    evening.meanwhile = late
    evening.work()
    row = read(database, 1)
    assert (row.status, row.detail.partition(",")[0]) == (Status.QUEUED, "the window closes")
    assert serving_units(evening) == [PROD]


def test_what_does_not_fit_before_the_window_closes_waits(database: Database, evening: Night) -> None:
    submit(database, "long")
    evening.work()
    with database.write() as session:
        session.execute(update(DurationRow).where(DurationRow.part == "bench").values(seconds=5 * 3600.0))  # type: ignore[arg-type]
    submit(database, "long again")
    assert not due(database)
    submit(database, "never measured", bench={"concurrency": [1], "repeat": 1, "warmup": 0, "max_tokens": 7})
    evening.work()
    assert evening.measured == ["long", "never measured"]


def test_unsafe_production_is_not_parked_and_the_host_is_blocked(database: Database, evening: Night) -> None:
    source = evening.host.sources[PROD]
    evening.host.sources[PROD] = source.__class__(PROD, (), "sha", {**source.properties, "NeedDaemonReload": "yes"}, source.live_argv)
    submit(database)
    evening.work()
    assert (evening.measured, serving_units(evening), read(database, 1).status) == ([], [PROD], Status.QUEUED)
    with database.read() as session:
        assert "daemon-reload" in (hosts.by_name(session, "local").blocked or "")


@pytest.mark.parametrize("where", ["stop_unit", "running", "restore", "disarm"])
def test_a_worker_lost_while_parking_or_restoring_is_followed_by_one_that_goes_on(
    database: Database, evening: Night, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    submit(database)
    act = getattr(evening.host, where)
    left = [1]

    def die(*args: Any, **named: Any) -> Any:
        if left and left.pop():
            raise HandOver
        return act(*args, **named)

    monkeypatch.setattr(evening.host, where, die)
    evening.work()
    assert due(database), "an open shift is a promise"
    evening.work("second")
    assert (evening.measured, serving_units(evening)) == (["x"], [PROD])
    assert told(database).count(EventType.PRODUCTION_RESTORED) == 1
    with database.read() as session:
        assert shifts.current(session, 1) is None
