from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event, update
from sqlmodel import Session, col, select

from service.domain.spec import Spec
from service.domain.status import Outcome, StepName
from service.store import agenda, experiments, forecast, foresight, history, hosts, shifts, submission
from service.store.database import Database
from service.store.tables import BenchPhaseRow, DurationRow, ExperimentRow, StepRow

EVENING = datetime(2026, 11, 30, 20, 0, tzinfo=UTC)
PARKED = {"units": "systemd", "park": ["prod.service"], "window": "20:00-08:00"}
HOUR = 3600.0


@pytest.fixture(autouse=True)
def _host(host: str) -> None:
    """Every test has one."""


def submit(session: Session, model: str = "m", **more: Any) -> int:
    bench = {"concurrency": [1, 8], "repeat": 2, "warmup": 2, **more.pop("bench", {})}
    engine = {"kind": "vllm", "model": model, "args": more.pop("args", {})}
    spec = {"name": model, "engine": engine, "bench": bench, **more}
    return submission.submit(session, Spec.model_validate(spec), "me").id or 0


def past(session: Session, model: str = "m", *, attempt: int = 1, parts: dict[str, float] | None = None, **more: Any) -> int:
    """A finished experiment, and how long its parts took: by default an hour to load and half an hour to measure."""
    one = submit(session, model, **more)
    row = experiments.get(session, one)
    row.status, row.outcome, row.finished_at = "finished", Outcome.SUCCEEDED, EVENING
    session.add(row)
    for part, seconds in {"ready": HOUR, "bench": HOUR / 2, **(parts or {})}.items():
        repeat = 2 if part in {"bench", "measure", "bench:1", "bench:8"} else None
        session.add(
            DurationRow(
                host_id=1, experiment_id=one, attempt=attempt, part=part, seconds=seconds, engine_hash=row.engine_hash,
                engine_kind="vllm", served_model=row.served_model, repeat=repeat,
                bench_hash=row.bench_hash if part.startswith(("bench", "warm", "measure", "collect")) else "",
            )
        )  # fmt: skip
    session.flush()
    return one


def park(session: Session, **more: Any) -> None:
    hosts.register(session, "local", "local", {**PARKED, **more})


def night(database: Database, now: datetime = EVENING) -> forecast.Night:
    with database.read() as session:
        return forecast.night(session, "local", now)


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    asked: list[str] = []

    def note(*given: Any) -> None:
        asked.append(given[2])

    event.listen(database.engine, "before_cursor_execute", note)
    yield asked
    event.remove(database.engine, "before_cursor_execute", note)


def test_no_history_yet(database: Database) -> None:
    with database.write() as session:
        first, second = submit(session), submit(session)
    found = night(database)
    assert (found.text_of(first), found.ahead(second)) == ("starts about 20:00; how long it takes: no history yet", 1)
    assert found.text_of(second) == "no history yet"
    assert found.text() == "the night: 0 of 2 foreseen; no history yet of 1"


def test_the_nearest_history_counts(database: Database) -> None:
    """The same configuration, else the model, else the kind of engine; the bench must be the same in any case."""
    with database.write() as session:
        past(session, "m", parts={"ready": 100.0})
        past(session, "m", args={"max-model-len": 8}, parts={"ready": 200.0})
        past(session, "other", parts={"ready": 300.0, "bench": 30.0})
        ids = [submit(session, "m"), submit(session, "m", args={"max-model-len": 9}), submit(session, "third")]
        other_bench = submit(session, "m", bench={"max_tokens": 7})
    found = night(database)
    assert [found.bases[one].text() for one in ids] == [
        "by 1 load of this configuration",
        "by 2 loads of this model",
        "by 3 loads of vllm, 3 measurements of this kind",
    ]
    assert other_bench not in found.bases


def test_twice_the_repeats_take_twice_as_long(database: Database) -> None:
    with database.write() as session:
        past(session)
        one = submit(session, bench={"repeat": 4})
    slot = night(database).slot(one)
    assert slot is not None
    assert slot.ends_at == EVENING + timedelta(hours=2)


def test_only_the_latest_count_and_another_host_s_never(database: Database) -> None:
    with database.write() as session:
        hosts.register(session, "far", "local", {})
        for seconds in [9 * HOUR] * 3 + [HOUR] * history.REMEMBERED:
            past(session, parts={"ready": seconds})
        one, far = submit(session), submit(session, host="far")
    found = night(database)
    assert found.bases[one].loads == history.REMEMBERED
    slot = found.slot(one)
    assert slot is not None
    assert slot.ends_p90 == EVENING + timedelta(hours=1.5)
    with database.read() as session:
        assert forecast.night(session, "far", EVENING).bases.get(far) is None


def test_the_night_against_the_window(database: Database) -> None:
    """Until 07:45; each takes an hour and a half, in nine of ten cases an hour and 40 minutes."""
    with database.write() as session:
        park(session)
        past(session)
        ids = [submit(session) for _ in range(9)]
    found = night(database)
    assert found.text() == "the night: 7 of 9 fit before 07:45"
    assert found.text_of(ids[1]) == "starts about 21:31, ends about 23:01 (p90 23:15); by 1 load of this configuration"
    assert found.text_of(ids[7]) == (
        "will not fit tonight: needs about 1 h 40 min, 1 h 14 min are left; next window opens 01 Dec 20:00; "
        "starts about 01 Dec 20:01, ends about 01 Dec 21:31 (p90 01 Dec 21:41); by 1 load of this configuration"
    )


@pytest.mark.parametrize("seed", range(2))
def test_it_agrees_with_how_experiments_are_chosen(database: Database, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """A worker goes through the same queue, each experiment taking what it takes mostly."""
    rng = random.Random(seed)  # noqa: S311 - a made-up queue
    with database.write() as session:
        park(session, close_after="12h")
        for number in range(5):
            past(session, f"m{number}", parts={"ready": rng.uniform(0.2, 7) * HOUR, "bench": rng.uniform(0.1, 1) * HOUR})
        ids: list[int] = []
        for _ in range(14):
            later = EVENING + timedelta(hours=rng.uniform(0, 9)) if rng.random() < 0.3 else None
            after = [rng.choice(ids)] if ids and rng.random() < 0.3 else []
            one = submit(session, f"m{rng.randrange(5)}", priority=rng.randrange(3), after=after)
            experiments.get(session, one).not_before = later
            ids.append(one)
    foreseen = night(database)
    starts = {slot.starts_at: slot.id for slot in foreseen.slots.values() if slot.starts_at and slot.night == 0}
    expected = [starts[moment] for moment in sorted(starts)]
    assert _worked_through(database, monkeypatch) == expected
    assert 0 < len(expected) < len(ids)


def _worked_through(database: Database, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    done = []
    now = EVENING + timedelta(seconds=history.ASSUMED_PARK_S)
    monkeypatch.setattr(experiments, "utc_now", lambda: now)
    with database.write() as session:
        lease = hosts.claim(session, "local", "w", 3600.0)
        assert lease is not None
        shift = shifts.open_or_resume(session, lease).id or 0
        row = hosts.by_name(session, "local")
        while now < EVENING + timedelta(hours=12):
            taken = experiments.take_next(session, lease, shift, guests=False, among=agenda.fitting(session, row, now))
            if taken is None:
                now += timedelta(minutes=1)
                continue
            one = taken[0].id or 0
            done.append(one)
            config = history.config_of(taken[0])
            now += timedelta(seconds=history.estimates(session, 1, [config])[config].takes.p50)
            experiments.finish(session, lease, one, Outcome.SUCCEEDED, None, "", "")
            session.flush()
    return done


def test_what_waits_for_another_runs_after_it(database: Database) -> None:
    with database.write() as session:
        done = past(session)
        other = submit(session)
        urgent = submit(session, priority=1, after=[other])
        free = submit(session, priority=1, after=[done])
    starts = {slot.starts_at: one for one, slot in night(database).slots.items()}
    assert [starts[moment] for moment in sorted(moment for moment in starts if moment)] == [free, other, urgent]


def test_as_many_queries_for_a_long_queue_as_for_a_short_one(database: Database) -> None:
    with database.write() as session:
        park(session)
        past(session)
        submit(session)
    with statements(database) as short:
        night(database)
    with database.write() as session:
        for number in range(30):
            submit(session, f"m{number % 3}", args={"max-model-len": number}, after=[2] if number % 2 else [])
    with statements(database) as long:
        night(database)
    assert len(long) <= len(short) + 4, "up to four more scopes are looked into"


# What runs.

PHASES = {"load:engine_init": 60.0, "load:weights_loading": 1800.0, "load:torch_compile": 300.0, "load:cuda_graph_capture": 240.0}
WHOLE = {"clear": 10.0, "launch": 5.0, "load": 2400.0, **PHASES, "ready": 2415.0,
         "warm": 30.0, "measure": 900.0, "bench:1": 600.0, "bench:8": 300.0, "collect": 5.0, "bench": 935.0}  # fmt: skip


def running(session: Session, step: StepName, since_s: float, **values: Any) -> int:
    """An experiment that has been at a step for so long."""
    one = submit(session)
    lease = hosts.claim(session, "local", "w", 3600.0)
    assert lease is not None
    experiments.take_next(session, lease, shifts.open_or_resume(session, lease).id or 0)
    begun = EVENING - timedelta(seconds=since_s)
    for name in StepName:
        ended = None if name == step else begun
        session.add(StepRow(experiment_id=one, attempt=1, name=name, started_at=begun, finished_at=ended))
        if name == step:
            break
    session.execute(update(ExperimentRow).where(col(ExperimentRow.id) == one).values(step=step, **values))
    return one


def phases(**seconds_ago: float) -> dict[str, Any]:
    return {"phases": {name: (EVENING - timedelta(seconds=ago)).isoformat() for name, ago in seconds_ago.items()}}


@pytest.mark.parametrize(
    ("step", "since_s", "progress", "left", "words"),
    [
        (StepName.CLEAR, 4, {}, 6 + 5 + 2400 + 935, "about 40 min left (p90 46 min), all done about 20:55"),
        (StepName.LOAD, 30, {}, 2370 + 935, "then weights, compiling and CUDA graphs, about 40 min left"),
        (StepName.LOAD, 1260, phases(weights_loading=1200), 1140 + 935, "then compiling and CUDA graphs, about 19 min left (p90 22 min)"),
        (StepName.LOAD, 2000, phases(weights_loading=1940, torch_compile=100), 440 + 935, "then CUDA graphs, about 7 min left"),
        (StepName.WARM, 10, {}, 20 + 900 + 5, "about 15 min left"),
        (StepName.MEASURE, 100, {}, 500 + 300 + 5, "about 13 min left"),
        (StepName.COLLECT, 1, {}, 4, "about 4 s left"),
    ],
)
def test_what_is_left(database: Database, step: StepName, since_s: float, progress: dict[str, Any], left: float, words: str) -> None:
    with database.write() as session:
        past(session, parts=WHOLE)
        one = running(session, step, since_s, progress=progress)
        if step == StepName.MEASURE:
            session.add(
                BenchPhaseRow(experiment_id=one, attempt=1, kind="measured", concurrency=1, started_at=EVENING - timedelta(seconds=100))
            )
        behind = submit(session)
    found = night(database)
    slot, next_one = found.slot(one), found.slot(behind)
    assert slot is not None
    assert slot.ends_at is not None
    assert (slot.ends_at - EVENING).total_seconds() == pytest.approx(left, rel=0.001)
    assert found.text_of(one).startswith(words)
    assert next_one is not None
    assert next_one.starts_at == slot.ends_at


def test_the_second_level_is_what_is_left(database: Database) -> None:
    with database.write() as session:
        past(session, parts=WHOLE)
        one = running(session, StepName.MEASURE, 700)
        for level, start, end in ((1, 700, 90), (8, 80, None)):
            session.add(
                BenchPhaseRow(
                    experiment_id=one, attempt=1, kind="measured", concurrency=level, started_at=EVENING - timedelta(seconds=start),
                    finished_at=None if end is None else EVENING - timedelta(seconds=end),
                )
            )  # fmt: skip
    slot = night(database).slot(one)
    assert slot is not None
    assert slot.ends_at == EVENING + timedelta(seconds=220 + 5)


def test_longer_than_ever_before(database: Database) -> None:
    with database.write() as session:
        past(session, parts=WHOLE)
        one = running(session, StepName.LOAD, 2560, progress=phases(weights_loading=2500))
        behind = submit(session)
    found = night(database)
    assert found.text_of(one) == "then compiling and CUDA graphs, longer than ever before (max 30 min), at least 9 min more"
    assert "starts not before" in found.text_of(behind)


def test_a_load_whose_phases_have_holes_tells_nothing_of_its_phases(database: Database) -> None:
    with database.write() as session:
        past(session, parts={name: seconds for name, seconds in WHOLE.items() if name != "load:weights_loading"})
        one = running(session, StepName.LOAD, 400, progress=phases(torch_compile=100))
    slot = night(database).slot(one)
    assert slot is not None
    assert slot.ends_at == EVENING + timedelta(seconds=2000 + 935)


def test_how_long_production_takes_is_what_it_took(database: Database) -> None:
    with database.write() as session:
        assert agenda.restore_s(session, 1) == history.ASSUMED_RESTORE_S
        for seconds in (100.0, 200.0):
            session.add(DurationRow(host_id=1, part="restore", seconds=seconds))
        session.flush()
        assert agenda.restore_s(session, 1) == 200.0
        assert session.exec(select(ExperimentRow)).first() is None


def test_a_night_is_foreseen_once_while_nothing_happens(database: Database) -> None:
    with database.write() as session:
        past(session)
        submit(session)

    def look(seconds: float = 0.0) -> forecast.Night:
        with database.read() as session:
            return foresight.night(session, hosts.by_name(session, "local"), EVENING + timedelta(seconds=seconds))

    first = look()
    assert look(1.0) is first
    assert look(foresight.FRESH_S) is not first
    second = look(foresight.FRESH_S)
    with database.write() as session:
        submit(session)
        row = hosts.by_name(session, "local")
        assert len(foresight.night(session, row, EVENING).queue) == 2, "a writer sees what it has written"
    assert len(look(foresight.FRESH_S).queue) == len(second.queue) + 1


def test_what_is_kept_of_the_history_is_given_up_with_the_next_duration(database: Database) -> None:
    def ends_after() -> float:
        with database.read() as session:
            found = foresight.night(session, hosts.by_name(session, "local"), EVENING).slot(waits)
        assert found is not None
        assert found.ends_at is not None
        return (found.ends_at - EVENING).total_seconds() / HOUR

    with database.write() as session:
        past(session, parts={"ready": HOUR})
        waits = submit(session)
    assert ends_after() == 1.5
    with database.write() as session:
        past(session, parts={"ready": 3 * HOUR})
    assert ends_after() == 2.5
