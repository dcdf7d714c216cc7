"""Shifts of a host that serves by day: the store is real, the host is in memory."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from sqlmodel import select

from service.domain.events import EventType
from service.domain.host_requests import RequestKind
from service.domain.reasons import Reason
from service.domain.status import Outcome, Status
from service.store import agenda, events, hostrequests, hosts, openings, shifts
from service.store.database import Database
from service.store.tables import DurationRow, HostRequestRow, ShiftRow
from tests.integration.workers.night import Night, install, read, submit
from workers import serving
from workers.engines.base import Readiness
from workers.hosts.base import UnitState
from workers.hosts.fake_production import FakeProductionHost
from workers.reaching import Reach
from workers.steps.base import HandOver

PROD = "vllm-prod.service"
ANSWERED = Readiness(True, detail="m answered", models=("m",), token="ok")  # noqa: S106 - what the model said


def window(*, open_now: bool) -> str:
    """Two hours that contain this minute, or that are far from it."""
    start = datetime.now(UTC) + timedelta(hours=-1 if open_now else 6)
    return f"{start:%H:%M}-{start + timedelta(hours=2):%H:%M}"


class ParkingHost(FakeProductionHost):
    """Every unit of ours listens at once."""

    def start_unit(self, definition: Any) -> UnitState:
        super().start_unit(definition)
        self.listen(definition.name, 8001)
        return self.unit(definition.name)


@pytest.fixture
def evening(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Night:
    made = Night(database, tmp_path)
    made.host = ParkingHost("local")
    install(made, monkeypatch)
    monkeypatch.setattr(Reach, "impatient", lambda _self: made.host)
    monkeypatch.setattr(serving, "probe", lambda *_: ANSWERED)
    made.host.serve(PROD)
    configure(database)
    return made


def configure(database: Database, **changes: Any) -> None:
    config = {"units": "systemd", "park": [PROD], "window": window(open_now=True), "close_after": 0.05, **changes}
    with database.write() as session:
        hosts.register(session, "local", "local", config)


def told(database: Database) -> list[EventType]:
    wanted = ("shift.", "production.", "host.", "experiment.started", "experiment.finished", "experiment.requeued")
    with database.read() as session:
        return [event.type for event in events.since(session) if event.type.startswith(wanted)]


def due(database: Database) -> bool:
    with database.read() as session:
        return agenda.of(session, "local", datetime.now(UTC)).anything


def serving_units(night: Night) -> list[str]:
    return [name for name, state in night.host.states.items() if state.phase == "active"]


def closings(database: Database) -> list[str | None]:
    with database.read() as session:
        return [row.closing for row in session.exec(select(ShiftRow).order_by(ShiftRow.id)).all()]  # type: ignore[arg-type]


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


def rehearsal(database: Database) -> int:
    with database.write() as session:
        return hostrequests.ask(session, "local", RequestKind.REHEARSE, {}, "me").id or 0


def answer_to(database: Database, number: int) -> dict[str, Any]:
    with database.read() as session:
        row = hostrequests.get(session, "local", number)
        return {"status": row.status, "ok": row.ok, **row.answer}


def test_a_rehearsal_parks_and_gives_back_and_runs_nothing(database: Database, evening: Night) -> None:
    configure(database, window=None)
    submit(database)
    asked = rehearsal(database)
    evening.work()
    found = answer_to(database, asked)
    assert (found["ok"], found["downtime_s"] is not None) == (True, True)
    assert (evening.measured, serving_units(evening), closings(database)) == ([], [PROD], ["a rehearsal"])


def test_a_rehearsal_whose_worker_dies_is_given_back_and_runs_nothing(
    database: Database, evening: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(database, window=None)
    submit(database)
    asked = rehearsal(database)
    stop_unit, left = evening.host.stop_unit, [1]

    def die(*args: Any, **named: Any) -> UnitState:
        state = stop_unit(*args, **named)
        if left and left.pop():
            raise HandOver
        return state

    monkeypatch.setattr(evening.host, "stop_unit", die)
    evening.work()
    assert serving_units(evening) == [], "it died with production stopped"
    evening.work("second")
    assert (evening.measured, serving_units(evening), closings(database)) == ([], [PROD], ["a rehearsal"])
    found = answer_to(database, asked)
    assert (found["ok"], found["error"]) == (False, "it was cut before production was parked")


def test_a_rehearsal_that_was_asked_before_a_shift_opened_does_not_end_it(database: Database, evening: Night) -> None:
    submit(database)
    asked: list[int] = []

    def leave(_spec: Any, look: Callable[[], bool]) -> None:
        if not asked:
            with database.write() as session:
                host = hosts.by_name(session, "local")
                row = HostRequestRow(host_id=host.id or 0, kind=RequestKind.REHEARSE, created_by="me")
                session.add(row)
                session.flush()
                asked.append(row.id or 0)
            evening.stop.set()
            look()

    evening.meanwhile = leave
    evening.work()
    evening.stop.clear()
    evening.work("second")
    assert answer_to(database, asked[0])["error"] == "a shift is open"
    assert (read(database, 1).outcome, serving_units(evening)) == (Outcome.SUCCEEDED, [PROD])
    assert told(database).count(EventType.PRODUCTION_PARKED) == 1


def look_of(*missing: str, free_mib: int = 90_000) -> Callable[[Any], dict[str, Any]]:
    """A host on which all is there but these models."""

    def look(question: Any) -> dict[str, Any]:
        there = {"kind": "file", "readable": True, "executable": True, "path": "/bin/vllm", "mark": "1"}
        return {
            "user": "expctl",
            "help": {"why": "not asked here"},
            "programs": dict.fromkeys(question.get("programs", ()), there),
            "models": {name: {"kind": "missing"} if name in missing else there for name in question.get("models", ())},
            "paths": {},
            "disks": {path: {"free_mib": free_mib} for path in question.get("disks", ())},
        }

    return look


def test_production_is_not_parked_for_what_can_only_fail(database: Database, evening: Night) -> None:
    evening.host.looks = look_of("/gone")
    ids = [submit(database, name, engine={"kind": "vllm", "model": "/gone"}) for name in ("a", "b")]
    before = evening.host.states[PROD].invocation_id
    evening.work()
    for one in ids:
        row = read(database, one)
        assert (row.outcome, row.reason) == (Outcome.FAILED, Reason.MODEL_NOT_FOUND)
        assert "/gone" in row.detail
    assert evening.host.states[PROD].invocation_id == before
    assert EventType.PRODUCTION_PARKED not in told(database)
    assert evening.measured == []
    assert not due(database)


def test_a_fault_of_the_hosts_is_met_where_it_stops_the_night_and_not_the_queue(database: Database, evening: Night) -> None:
    evening.host.looks = look_of(free_mib=0)
    submit(database, "a", engine={"kind": "vllm", "model": "/there"})
    evening.work()
    assert EventType.PRODUCTION_PARKED in told(database)


def test_what_can_only_fail_does_not_keep_the_next_one_waiting(database: Database, evening: Night) -> None:
    evening.host.looks = look_of("/gone")
    first = submit(database, "a", engine={"kind": "vllm", "model": "/gone"})
    submit(database, "b", engine={"kind": "vllm", "model": "/there"})
    evening.work()
    assert evening.measured == ["b"]
    assert read(database, first).reason == Reason.MODEL_NOT_FOUND
    assert serving_units(evening) == [PROD]


def test_a_dry_run_is_answered_by_the_host_s_worker(database: Database, evening: Night) -> None:
    evening.host.looks = look_of("/gone")
    engines = {"a": {"kind": "vllm", "model": "/gone", "env": {"MY_TOKEN": "geheim123"}}, "b": {"kind": "vllm", "model": "/there"}}
    args = {"experiments": [{"name": name, "host": "local", "engine": engine} for name, engine in engines.items()]}
    with database.write() as session:
        asked = hostrequests.ask(session, "local", RequestKind.PREFLIGHT, args, "ann").id or 0
    evening.work()
    with database.read() as session:
        row = hostrequests.get(session, "local", asked)
    assert (row.status, row.ok) == ("finished", False)
    first, second = row.answer["experiments"]
    assert [one["about"] for one in first["findings"] if one["verdict"] == "wrong"] == ["model"]
    assert not [one for one in second["findings"] if one["verdict"] == "wrong"]
    assert row.args == {"experiments": ["a", "b"]}, "an environment is not kept longer than it is needed"
    assert serving_units(evening) == [PROD]
