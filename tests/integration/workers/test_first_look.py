"""What can only fail is found before production is parked for it; and dry runs."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from service.domain.events import EventType
from service.domain.host_requests import RequestKind
from service.domain.reasons import Reason
from service.domain.status import Outcome
from service.store import events, hostrequests
from service.store.database import Database
from tests.integration.workers.night import Night, read, submit, submit_command
from tests.integration.workers.parking import PROD, due, serving_units, told
from workers.firstlook import LOOKS_S

LOOKS_EACH = 2
"""Of one experiment: the program, then the places."""


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


def parked_when(database: Database, experiment: int) -> bool:
    """Whether production had been parked when an experiment ended."""
    with database.read() as session:
        found = [(one.type, one.experiment_id) for one in events.since(session)]
    return (EventType.PRODUCTION_PARKED, None) in found[: found.index((EventType.EXPERIMENT_FINISHED, experiment))]


def test_all_of_this_night_are_looked_at_before_production_is_parked(database: Database, evening: Night) -> None:
    evening.host.looks = look_of("/gone")
    good = submit(database, "a", engine={"kind": "vllm", "model": "/there"})
    broken = [submit(database, name, engine={"kind": "vllm", "model": "/gone"}) for name in ("b", "c")]
    evening.work()
    assert [read(database, one).reason for one in broken] == [Reason.MODEL_NOT_FOUND] * 2
    assert [parked_when(database, one) for one in (good, *broken)] == [True, False, False]
    assert evening.measured == ["a"]
    looked = [call for call, _ in evening.host.calls].index("stop_unit")
    assert [call for call, _ in evening.host.calls[:looked]].count("look") == 3 * LOOKS_EACH, (
        "the good one is not looked at again and again"
    )


def test_what_stands_behind_a_command_is_looked_at_in_its_turn(database: Database, evening: Night) -> None:
    evening.host.looks = look_of("/made-by-it")
    submit_command(database, "a")
    later = submit(database, "b", engine={"kind": "vllm", "model": "/made-by-it"})
    evening.work()
    assert parked_when(database, later)


def test_the_looks_before_parking_take_a_minute_at_most(database: Database, evening: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    hands = SimpleNamespace(now=0.0)
    look = look_of("/gone")

    def slow(question: Any) -> dict[str, Any]:
        hands.now += LOOKS_S / 2 / LOOKS_EACH
        return look(question)

    evening.host.looks = slow
    monkeypatch.setattr("workers.firstlook.time", SimpleNamespace(monotonic=lambda: hands.now))
    submit(database, "a", engine={"kind": "vllm", "model": "/there"})
    seen, unseen = [submit(database, name, engine={"kind": "vllm", "model": "/gone"}) for name in ("b", "c")]
    evening.work()
    assert not parked_when(database, seen)
    assert parked_when(database, unseen)


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
