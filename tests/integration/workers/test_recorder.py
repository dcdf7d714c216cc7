from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import event
from sqlmodel import col, select

from service.domain.errors import ClaimLost
from service.domain.events import EventType
from service.domain.status import StepName
from service.store import events, experiments, results
from service.store.tables import BenchPhaseRow
from tests.integration.workers.night import everything, read, request, summary
from tests.integration.workers.recording import Hands, Rig
from workers.recorder import STATUS_EVERY_S, StoreRecorder
from workers.steps.base import Cancelled, HandOver


def test_a_step_is_begun_once_and_ended_once(rig: Rig) -> None:
    rig.recorder.begin(StepName.CLEAR)
    assert not rig.recorder.finished(StepName.CLEAR)
    rig.again().begin(StepName.CLEAR)
    rig.recorder.end()
    rig.recorder.end()
    assert rig.again().finished(StepName.CLEAR)
    with rig.database.read() as session:
        told = [one.data for one in events.since(session, experiment_id=rig.id) if one.type == EventType.EXPERIMENT_STEP]
        assert experiments.get(session, rig.id).step == "clear"
    assert [(one["step"], one["state"]) for one in told] == [("clear", "begun"), ("clear", "done")]


def test_what_launch_found_is_there_for_the_next_worker(rig: Rig) -> None:
    rig.recorder.begin(StepName.LAUNCH)
    rig.recorder.note(unit="expctl-1-x", invocation_id="inv", evidence={"pid": 7})
    rig.recorder.note(evidence={"port": 8001})
    later = rig.after_takeover()
    assert later.invocation() == "inv"
    row = rig.step(StepName.LAUNCH)
    assert (row.unit, row.invocation_id, row.evidence) == ("expctl-1-x", "inv", {"pid": 7, "port": 8001})


def test_log_and_cursor_move_at_once(rig: Rig) -> None:
    rig.recorder.begin(StepName.LOAD)
    rig.recorder.copy_log(("a", "", "b"), "inv:3")
    rig.recorder.copy_log((), "inv:4")
    assert rig.log() == ["a\n\nb"]
    assert (rig.recorder.cursor(), rig.step(StepName.LOAD).cursor) == ("inv:4", "inv:4")
    assert list(rig.recorder.copied_log()) == ["a", "", "b"]


@pytest.mark.parametrize("broken", ["INSERT INTO log_chunks", "UPDATE steps"])
def test_neither_moves_alone(rig: Rig, broken: str) -> None:
    rig.recorder.begin(StepName.LOAD)
    rig.recorder.copy_log(("a",), "inv:1")

    def cut(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith(broken):
            raise RuntimeError("cut")

    event.listen(rig.database.engine, "before_cursor_execute", cut)
    with pytest.raises(RuntimeError, match="cut"):
        rig.recorder.copy_log(("b",), "inv:2")
    event.remove(rig.database.engine, "before_cursor_execute", cut)
    assert rig.log() == ["a"]
    assert (rig.recorder.cursor(), rig.step(StepName.LOAD).cursor) == ("inv:1", "inv:1")


def test_the_cursor_goes_on_in_the_next_step_and_the_next_worker(rig: Rig) -> None:
    rig.recorder.begin(StepName.LOAD)
    rig.recorder.copy_log(("a",), "inv:1")
    rig.recorder.begin(StepName.WARM)
    assert rig.recorder.cursor() == "inv:1"
    rig.recorder.copy_log(("b",), "inv:2")
    later = rig.after_takeover()
    later.begin(StepName.WARM)
    assert later.cursor() == "inv:2"


def test_the_next_attempt_begins_a_log_of_its_own(rig: Rig) -> None:
    rig.recorder.begin(StepName.LOAD)
    rig.recorder.copy_log(("of the first",), "inv:1")
    second = rig.again(attempt=2)
    second.begin(StepName.LAUNCH)
    assert (second.cursor(), second.invocation(), list(second.copied_log())) == (None, None, [])
    second.copy_log(("of the second",), "inv2:1")
    assert list(second.copied_log()) == ["of the second"]


def test_a_long_log_is_read_whole(rig: Rig) -> None:
    rig.recorder.begin(StepName.LOAD)
    for number in range(120):
        rig.recorder.copy_log((str(number),), f"inv:{number}")
    assert list(rig.recorder.copied_log()) == [str(number) for number in range(120)]


def test_a_cut_bench_phase_counts_no_more_and_its_rows_stay(rig: Rig) -> None:
    rig.recorder.begin(StepName.MEASURE)
    whole = rig.recorder.begin_phase("measured", 1)
    rig.recorder.add_request(whole, request())
    rig.recorder.end_phase(whole, summary(), None)
    rig.recorder.add_request(rig.recorder.begin_phase("measured", 8), request("cut", ok=False))
    later = rig.after_takeover()
    assert later.measured_levels() == {1}
    assert later.failed_requests() == []
    again = later.begin_phase("measured", 8)
    later.add_request(again, request("maths"))
    later.add_request(again, request("code", ok=False))
    later.end_phase(again, summary(2), None)
    assert later.measured_levels() == {1, 8}
    assert [one.prompt for one in later.failed_requests()] == ["code"]
    with rig.database.read() as session:
        found = results.phases(session, rig.id, 1)
    assert [(phase.concurrency, [one.prompt for one in phase.requests]) for phase in found] == [(1, ["code"]), (8, ["maths", "code"])]
    with rig.database.read() as session:
        phases = session.exec(select(BenchPhaseRow).order_by(col(BenchPhaseRow.id))).all()
    assert [(phase.concurrency, phase.superseded) for phase in phases] == [(1, False), (8, True), (8, False)]
    assert len(everything(rig.database)["requests"]) == 4


def test_one_level_cut_leaves_the_others_alone(rig: Rig) -> None:
    rig.recorder.begin(StepName.MEASURE)
    first = rig.recorder.begin_phase("measured", 1)
    rig.recorder.begin_phase("measured", 8)
    rig.recorder.begin_phase("warmup", 1)
    rig.recorder.end_phase(first, summary(), None)
    assert rig.recorder.measured_levels() == {1}


WRITES: dict[str, Callable[[StoreRecorder, int], object]] = {
    "begin": lambda recorder, _: recorder.begin(StepName.COLLECT),
    "begin again": lambda recorder, _: recorder.begin(StepName.MEASURE),
    "end": lambda recorder, _: recorder.end(),
    "note": lambda recorder, _: recorder.note(evidence={"x": 1}),
    "copy_log": lambda recorder, _: recorder.copy_log(("late",), "inv:9"),
    "cursor alone": lambda recorder, _: recorder.copy_log((), "inv:9"),
    "load progress": lambda recorder, _: recorder.progress({"x": 1}, event="load"),
    "bench progress": lambda recorder, _: recorder.progress({"x": 1}, event="bench"),
    "facts": lambda recorder, _: recorder.facts({"x": 1}),
    "begin_phase": lambda recorder, _: recorder.begin_phase("measured", 1),
    "add_request": lambda recorder, phase: recorder.add_request(phase, request()),
    "end_phase": lambda recorder, phase: recorder.end_phase(phase, summary(), None),
    "confirm": lambda recorder, _: recorder.confirm(),
    "check": lambda recorder, _: recorder.check(),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_who_was_taken_over_can_write_nothing(rig: Rig, write: Callable[[StoreRecorder, int], object]) -> None:
    rig.recorder.begin(StepName.MEASURE)
    phase = rig.recorder.begin_phase("measured", 1)
    rig.after_takeover()
    before = everything(rig.database)
    with pytest.raises(ClaimLost):
        write(rig.recorder, phase)
    assert everything(rig.database) == before


def test_every_writing_method_is_among_those() -> None:
    reads = {"finished", "invocation", "launched", "since_launch_s", "cursor", "copied_log", "measured_levels", "failed_requests"}
    reads |= {"longest_s"}
    methods = {name for name, value in vars(StoreRecorder).items() if callable(value) and not name.startswith("_")}
    tried = {
        "begin",
        "end",
        "note",
        "copy_log",
        "progress",
        "facts",
        "begin_phase",
        "add_request",
        "end_phase",
        "confirm",
        "check",
        "check_claim",
    }
    assert methods == reads | tried


def test_progress_is_shown_and_told(rig: Rig) -> None:
    rig.recorder.begin(StepName.LOAD)
    rig.recorder.progress({"phase": "weights_loading"}, event="load")
    rig.recorder.progress({"done": 1}, event="bench")
    assert read(rig.database, rig.id).progress == {"done": 1}
    with rig.database.read() as session:
        told = [(one.type, one.actor) for one in events.since(session, experiment_id=rig.id)][-2:]
    assert told == [(EventType.LOAD_PROGRESS, "worker:first"), (EventType.BENCH_PROGRESS, "worker:first")]


def test_facts_add_up(rig: Rig) -> None:
    rig.recorder.facts({"a": 1, "b": 1})
    rig.recorder.facts({"b": 2})
    assert read(rig.database, rig.id).facts == {"a": 1, "b": 2}


def test_cancel_is_seen_within_the_interval_and_read_no_more_often(rig: Rig, hands: Hands) -> None:
    rig.recorder.check()
    with rig.database.write() as session:
        experiments.cancel(session, rig.id, "me")
    hands.now += STATUS_EVERY_S * 0.9
    rig.recorder.check()
    hands.now += STATUS_EVERY_S * 0.1
    with pytest.raises(Cancelled):
        rig.recorder.check()


def test_a_cancel_before_the_first_look_is_seen_at_once(rig: Rig) -> None:
    with rig.database.write() as session:
        experiments.cancel(session, rig.id, "me")
    with pytest.raises(Cancelled):
        rig.recorder.check()


def test_asked_to_go_it_hands_over_at_once(rig: Rig, hands: Hands) -> None:
    rig.recorder.check()
    rig.stop.set()
    with pytest.raises(HandOver):
        rig.recorder.check()
    assert hands.now == 1000.0


def test_a_lost_heart_comes_before_anything_else(rig: Rig) -> None:
    rig.stop.set()
    rig.heart.lost.set()
    with pytest.raises(ClaimLost):
        rig.recorder.check()


def test_a_check_is_a_sign_of_life(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: list[int] = []
    monkeypatch.setattr(rig.heart, "tick", lambda: ticks.append(1))
    rig.recorder.check()
    assert ticks == [1]


def test_nothing_is_written_before_a_step_was_begun(rig: Rig) -> None:
    with pytest.raises(RuntimeError, match="no step was begun"):
        rig.recorder.note(evidence={"x": 1})
