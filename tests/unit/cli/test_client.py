"""The client as programs use it."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import expctl
from expctl import Client, errors
from expctl import client as module
from expctl.answers import Answer, Field
from tests.unit.cli.fake_service import FAILED, FakeService, item

RUNNING = item(status="running", status_text="Loading")
DONE = FAILED | {"outcome": "succeeded", "status_text": "Succeeded", "finished_at": "2026-11-30T21:00:00Z"}


@pytest.fixture
def client(fake: FakeService) -> Client:
    return Client(fake.url)


def changing(*moments: Any) -> Any:
    """Each answer once, and the last one for ever."""
    left = list(moments)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def test_an_answer_is_a_dictionary_with_attributes(fake: FakeService, client: Client) -> None:
    fake.answers = {"GET /v1/experiments/41": DONE}
    found = client.experiment(41)
    assert found == DONE
    assert (found.id, found["id"], found.finished, found.succeeded) == (41, 41, True, True)
    assert found.finished_at == datetime(2026, 11, 30, 21, tzinfo=UTC)
    assert found.started_at is None
    assert found.steps == []


def test_the_class_shows_its_fields() -> None:
    class Odd(Answer):
        schema_ = Field[str]()

    assert isinstance(Odd.schema_, Field)
    assert Odd(schema="x").schema_ == "x"
    with pytest.raises(KeyError):
        _ = Odd().schema_


def test_one_spec_gives_one_experiment_and_a_list_a_list(fake: FakeService, client: Client) -> None:
    fake.answers = {"POST /v1/experiments": (201, item(42))}
    assert client.submit({"name": "x"}).id == 42
    fake.answers = {"POST /v1/experiments": (201, [item(42), item(43)])}
    assert [one.id for one in client.submit([{"name": "x"}, {"name": "y"}])] == [42, 43]
    keys = [headers["Idempotency-Key"] for headers in fake.headers]
    assert len(set(keys)) == 2, "a key of its own for each submission"


def test_waiting_gives_each_in_order_and_tells_of_each_once(fake: FakeService, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_POLL_S", 0.0)
    fake.answers = {
        "GET /v1/experiments/41": changing(item(), RUNNING, DONE),
        "GET /v1/experiments/42": changing(FAILED | {"id": 42}),
    }
    told: list[int] = []
    ended = client.wait([41, 42, 41], told=lambda one: told.append(one.id))
    assert [(one.id, one.outcome) for one in ended] == [(41, "succeeded"), (42, "failed"), (41, "succeeded")]
    assert told == [42, 41]
    assert fake.asked.count("GET /v1/experiments/42") == 1, "what has ended is not asked for again"


def test_a_wait_that_is_over_too_early_says_what_has_not_finished(fake: FakeService, client: Client) -> None:
    fake.answers = {"GET /v1/experiments/41": RUNNING, "GET /v1/experiments/42": FAILED | {"id": 42}}
    assert [one.finished for one in client.wait([41, 42], timeout_s=0)] == [False, True]
    assert [one.finished for one in client.wait([41, 42], fail_fast=True)] == [False, True]
    assert client.patience_s == 0.0


def test_a_wait_sits_out_a_restart_of_the_service(fake: FakeService, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    away = (503, {"reason": "unavailable", "title": "away"})
    fake.answers = {"GET /v1/experiments/41": changing(away, away, DONE)}
    assert client.wait([41])[0].succeeded
    fake.answers = {"GET /v1/experiments/41": changing(away, DONE)}
    with pytest.raises(errors.Unavailable):
        client.experiment(41)


def test_one_candidate_gives_one_comparison_and_a_list_a_list(fake: FakeService, client: Client) -> None:
    effect = {"tps_ratio": 1.2, "ci95": None, "smallest_detectable": None, "between_load_sd": {}}
    found = {"baseline": 41, "candidate": 42, "verdict": "better", "bench_phases": [{"effect": effect}, {"effect": None}]}
    fake.answers = {"GET /v1/compare": found}
    one = client.compare(41, 42)
    assert (one.verdict, [phase.effect.tps_ratio if phase.effect else None for phase in one.bench_phases]) == ("better", [1.2, None])
    assert client.compare(41, [42]) == [found]
    fake.answers = {"GET /v1/compare": [found, found]}
    assert len(client.compare(41, [42, 43])) == 2


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [(401, "not-signed-in", errors.NotSignedIn), (404, "not-found", errors.NotFound), (409, "conflict", errors.Conflict)],
)
def test_errors_are_classes_with_what_why_and_what_to_do(
    fake: FakeService, client: Client, status: int, reason: str, kind: type[errors.ExpctlError]
) -> None:
    fake.answers = {"GET /v1/experiments/41": (status, {"reason": reason, "title": "what", "detail": "why", "todo": "to do"})}
    with pytest.raises(kind) as caught:
        client.experiment(41)
    assert caught.value.lines() == ["what", "why", "to do"]


def test_an_answer_that_is_no_object_is_no_expctl_service(fake: FakeService, client: Client) -> None:
    fake.answers = {"GET /v1/experiments": ["x"]}
    with pytest.raises(errors.Unavailable, match="answered with something else"):
        client.experiments()


def test_the_package_gives_the_client_and_nothing_that_it_has_not() -> None:
    assert expctl.Client is Client
    assert expctl.errors is errors
    with pytest.raises(AttributeError, match="no attribute 'Server'"):
        _ = expctl.Server  # type: ignore[attr-defined]


def test_importing_the_package_loads_no_http() -> None:
    code = "import sys, expctl; assert 'httpx' not in sys.modules and 'pydantic' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parents[3])
    assert done.returncode == 0
