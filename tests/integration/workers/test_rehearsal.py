"""Rehearsals: production is parked and given back, and nothing is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from service.domain.events import EventType
from service.domain.host_requests import RequestKind
from service.domain.status import Outcome
from service.store import hostrequests, hosts
from service.store.database import Database
from service.store.tables import HostRequestRow
from tests.integration.workers.night import Night, read, submit
from tests.integration.workers.parking import PROD, closings, configure, serving_units, told
from workers.hosts.base import UnitState
from workers.steps.base import HandOver


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
