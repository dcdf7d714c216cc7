"""Pages stay small whatever an experiment brings: many prompts, many failures, many experiments in a night."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from service.domain.events import EventType
from service.domain.reasons import Reason
from service.domain.status import Outcome
from service.pages import comparing, experiment, timeline
from service.store.database import Database
from service.store.tables import BenchPhaseRow, EventRow, ExperimentRow, RequestRow, StepRow, utc_now
from tests.integration.api.service import Hands
from tests.integration.pages.reading import Browser

PROMPTS, LEVELS = 120, (1, 8)
NAMES = [f"customer-ticket-{number:03d}" for number in range(PROMPTS)]
MOST_BYTES = 150_000


@pytest.fixture
def many(browser: Browser) -> Browser:
    """1 and 2 with many prompts; of 2 the last one changed most, and every request at concurrency 8 of 3 failed."""
    api = browser.api
    hands = Hands(api.database)
    prompts = [{"id": name, "messages": [{"role": "user", "content": "word " * 60}]} for name in NAMES]
    for number, name in enumerate(("base", "faster", "broken")):
        one = api.submit(name=name, bench={"prompts": prompts, "concurrency": list(LEVELS), "repeat": 2})["id"]
        hands.take()
        _measure(api.database, one, 50.0 + 5 * number, broken=name == "broken")
        hands.finish(one, *((Outcome.INVALID, Reason.TRUNCATED_STREAM) if name == "broken" else ()))
    return browser


def _measure(database: Database, one: int, tps: float, *, broken: bool) -> None:
    figures, now = dict.fromkeys(("mean", "p50", "p90", "p99"), tps), utc_now()
    for level in LEVELS:
        lost = broken and level == LEVELS[1]
        summary: dict[str, Any] = {"requests": 2 * PROMPTS, "failed": 2 * PROMPTS if lost else 0, "valid": not lost, "duration_s": 10.0}
        summary |= {"output_tokens": 1000, "output_tps": 100.0} | dict.fromkeys(("tps", "ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"), figures)
        with database.write() as session:
            phase = BenchPhaseRow(
                experiment_id=one,
                attempt=1,
                kind="measured",
                concurrency=level,
                started_at=now,
                finished_at=now,
                summary=summary,
            )
            session.add(phase)
            session.flush()
            for place, name in enumerate(NAMES):
                speed = tps * (2 if tps > 50 and place == PROMPTS - 1 else 1)
                given: dict[str, Any] = {"ok": False, "reason": "truncated_stream", "error_message": "the stream broke"}
                given = given if lost else {"ok": True, "tps": speed, "tpot_s": 1 / speed, "ttft_s": 0.2, "completion_tokens": 100}
                session.add_all([RequestRow(bench_phase_id=phase.id or 0, prompt=name, repeat=repeat, **given) for repeat in (0, 1)])


def test_an_experiment_with_many_prompts_shows_some_and_says_where_the_rest_is(many: Browser) -> None:
    page = many.page("/e/3")
    room = experiment.ROWS // len(LEVELS)
    assert len(page.html) < MOST_BYTES
    assert f"{PROMPTS - room} more prompts" in page.text
    assert page.text.count("Failed: customer-ticket") == experiment.FAILURES
    assert f"and {2 * PROMPTS - experiment.FAILURES} more" in page.text
    assert "expctl show 3 --json" in page.text, "the spec has all the prompts"


def test_a_comparison_of_many_prompts_shows_those_that_changed_most(many: Browser) -> None:
    for path in ("/compare?base=1&ids=2", "/compare?base=1&ids=2&all=true"):
        page = many.page(path)
        assert len(page.html) < MOST_BYTES, path
        assert f"tok/s, {NAMES[-1]}" in page.text
        assert f"tok/s, {NAMES[-2]}" not in page.text, "as little changed as others before it"
        assert f"Each level has {PROMPTS - comparing.PROMPTS // len(LEVELS)} more prompts" in page.text
    assert many.get("/compare.csv?base=1&ids=2").text.count("customer-ticket-") == PROMPTS * len(LEVELS)


def test_a_crowded_night_shows_its_latest(browser: Browser) -> None:
    database = browser.api.database
    first = browser.api.submit(name="one of many")["id"]
    with database.write() as session:
        like = session.get_one(ExperimentRow, first)
        same = {name: value for name, value in like.model_dump().items() if name != "id"}
        for number in range(timeline.MOST + 30):
            begun = utc_now() - timedelta(minutes=20) + timedelta(seconds=number)
            ended = {"status": "finished", "outcome": "succeeded", "started_at": begun, "finished_at": begun + timedelta(seconds=60)}
            row = ExperimentRow(**same | ended | {"name": f"a sweep with a long name of its own, number {number}"})
            session.add(row)
            session.flush()
            steps = ("clear", "launch", "load", "warm", "measure", "collect")
            session.add_all(
                StepRow(experiment_id=row.id or 0, attempt=1, name=name, started_at=begun, finished_at=begun + timedelta(seconds=9))
                for name in steps
            )
            session.add(EventRow(type=EventType.EXPERIMENT_FINISHED, actor="w", host="local", experiment_id=row.id, data={}, at=utc_now()))
    page = browser.page("/timeline?from=1h")
    assert f"{timeline.MOST + 30} ran, the latest {timeline.MOST} are shown" in page.text
    assert "number 129" in page.text
    assert "number 29" not in page.text.replace("number 129", "")
    assert len(page.html) < MOST_BYTES
