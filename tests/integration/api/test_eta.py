from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event

from service.domain.events import EventType
from service.store import events, experiments, foresight
from service.store.tables import DurationRow, StepRow, utc_now
from tests.integration.api.service import Api, spec


def test_when_it_runs(api: Api) -> None:
    """Known from the last one: what waits, what runs, and the night of their host."""
    assert (api.submit()["eta"], api.submit()["eta_text"]) == (None, "no history yet")
    first = api.get("/v1/experiments/1").json()
    assert first["starts_at"] is not None
    assert (first["eta"], first["eta_p90"]) == (None, None)
    assert first["eta_text"].endswith("; how long it takes: no history yet")
    with api.database.write() as session:
        row = experiments.get(session, 1)
        same = {"host_id": 1, "experiment_id": 1, "engine_hash": row.engine_hash, "engine_kind": "vllm", "served_model": "m"}
        session.add(DurationRow(part="ready", seconds=3600.0, **same))
        session.add(DurationRow(part="bench", seconds=600.0, bench_hash=row.bench_hash, **same))
    third = api.submit()
    assert third["eta"] > third["starts_at"]
    assert third["eta_p90"] > third["eta"]
    assert third["eta_text"].endswith("; by 1 load of this configuration")
    listed = {item["id"]: item for item in api.get("/v1/experiments").json()["items"]}
    assert [listed[one]["eta"] < listed[one + 1]["eta"] for one in (1, 2)] == [True, True]
    assert api.get("/v1/hosts").json()[0]["night_text"].startswith("the night: 3 of 3 foreseen, done about ")
    api.post("/v1/experiments/2/cancel")
    ended = api.get("/v1/experiments/2").json()
    assert (ended["eta"], ended["starts_at"], ended["eta_text"]) == (None, None, "")


def test_a_page_of_many_takes_no_more_queries_than_a_page_of_few(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    # A night that was just foreseen is shown again for two seconds, which a slow machine has or has not spent by now.
    monkeypatch.setattr(foresight, "FRESH_S", 0.0)

    def queries() -> int:
        asked: list[str] = []

        def note(*given: Any) -> None:
            asked.append(given[2])

        event.listen(api.database.engine, "before_cursor_execute", note)
        assert api.get("/v1/experiments", limit=100).status_code == 200
        event.remove(api.database.engine, "before_cursor_execute", note)
        return len(asked)

    api.submit()
    few = queries()
    assert api.post("/v1/experiments", [spec(name=f"x{number}", after=[1], priority=number % 3) for number in range(40)]).status_code == 201
    assert queries() == few


def test_a_load_says_what_is_left_of_it(api: Api) -> None:
    """By now, and not by when it was last further."""
    assert "eta" not in api.submit()["progress"]
    with api.database.write() as session:
        row = experiments.get(session, 1)
        begun = utc_now() - timedelta(minutes=5)
        row.status, row.step, row.started_at = "running", "load", begun
        row.progress = {"phase": "weights_loading", "done": 29, "total": 64, "phases": {"weights_loading": begun.isoformat()}}
        for name in ("clear", "launch", "load"):
            session.add(
                StepRow(experiment_id=1, attempt=row.attempt, name=name, started_at=begun, finished_at=None if name == "load" else begun)
            )
        same = {"host_id": 1, "experiment_id": 1, "engine_hash": row.engine_hash, "engine_kind": "vllm", "served_model": "m"}
        took = {"ready": 2000.0, "load": 2000.0, "load:weights_loading": 1500.0, "load:torch_compile": 500.0}
        for part, seconds in took.items():
            session.add(DurationRow(part=part, seconds=seconds, **same))
        session.add(DurationRow(part="bench", seconds=600.0, bench_hash=row.bench_hash, **same))
        events.emit(session, EventType.EXPERIMENT_STARTED, "worker", host="local", experiment_id=1)
    shown = api.get("/v1/experiments/1").json()
    eta = shown["progress"]["eta"]
    assert 1690 < eta["left_s"] <= 1700
    assert eta["text"].startswith("weights 29/64, then compiling, about 28 min left (p90 ")
    assert eta["text"].endswith(shown["eta_text"].partition(", all done")[0])
