"""`expctl notify` in this process, against a service that says what the test tells it to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from expctl import fields
from expctl.main import run
from service.api.deliveries import DeliveryDetail, DeliveryOut
from service.api.notifiers import NotifierMade, NotifierOut
from tests.unit.cli.fake_service import FakeService, Json

Capture = pytest.CaptureFixture[str]
SECRET = "whsec_AAAA"


def notifier(**changes: Any) -> Json:
    base: Json = {
        "name": "infra", "kind": "slack", "url": "https://hooks.slack.com/...", "events": [], "hosts": [], "default": False,
        "rotating": False, "disabled_at": None, "disabled_because": None, "pending": 0, "dead": 0, "created_by": "ann",
        "created_at": "2026-11-30T20:00:00Z",
    }  # fmt: skip
    return {**base, **changes}


def delivery(**changes: Any) -> Json:
    base: Json = {
        "id": 7, "notifier": "infra", "type": "experiment.failed", "headline": "42 x: failed", "experiment_id": 42, "event_id": 3,
        "message_id": "msg_1", "status": "pending", "ended_because": None, "attempts": 0, "next_try": None,
        "created_at": "2026-11-30T20:00:00Z", "delivered_at": None, "message": {}, "tries": [],
    }  # fmt: skip
    return {**base, **changes}


def tried(http_status: int | None, error: str | None, answer: str = "") -> Json:
    return {"at": "2026-11-30T20:00:00Z", "http_status": http_status, "error": error, "answer": answer, "seconds": 0.12}


def test_fields_are_those_of_the_api() -> None:
    assert tuple(NotifierOut.model_fields) == fields.NOTIFIER
    assert set(fields.NOTIFIER_MADE) == set(NotifierMade.model_fields)
    assert tuple(DeliveryOut.model_fields) == fields.DELIVERY
    assert set(fields.DELIVERY_DETAIL) == set(DeliveryDetail.model_fields)


def test_add_prints_the_secret_alone_on_stdout(fake: FakeService, capsys: Capture) -> None:
    fake.answers = {"POST /v1/notifiers": (201, notifier(kind="webhook", url="https://ci.corp/in", secret=SECRET))}
    assert run(["notify", "add", "infra", "--kind", "webhook", "--url", "https://ci.corp/in", "--event", "host.blocked"]) == 0
    said = capsys.readouterr()
    assert said.out == f"{SECRET}\n"
    assert said.err.splitlines() == [
        "added infra (https://ci.corp/in)",
        "the secret its receiver checks signatures with; it is not shown again:",
        "it is told of experiments that name it (notify: [webhook:infra]) and of nothing else; --default changes that",
        "next: expctl notify test infra",
    ]


def test_add_of_slack_has_no_secret_to_print(fake: FakeService, capsys: Capture) -> None:
    fake.answers = {"POST /v1/notifiers": (201, notifier(default=True, secret=None))}
    assert run(["notify", "add", "infra", "--kind", "slack", "--url", "https://hooks.slack.com/services/x", "--default"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "added infra (https://hooks.slack.com/...)\nnext: expctl notify test infra\n")


def test_list_says_what_is_wrong(fake: FakeService, capsys: Capture) -> None:
    dead = notifier(name="old", disabled_at="2026-11-30T20:00:00Z", disabled_because="the receiver answered 410 (gone)")
    some = notifier(name="ci", kind="webhook", hosts=["gpu-01"], events=["host.blocked"], pending=2, dead=1, rotating=True)
    fake.answers = {"GET /v1/notifiers": [notifier(default=True), dead, some]}
    assert run(["notify", "list", "--no-color"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == "infra slack https://hooks.slack.com/... the usual default ok"
    assert lines[2].startswith("old slack https://hooks.slack.com/... the usual only where named disabled: the receiver")
    assert "2 pending, 1 dead, signs with two secrets" in " ".join(lines)
    assert run(["notify", "list", "-q"]) == 0
    assert capsys.readouterr().out.split() == ["infra", "old", "ci"]


def test_list_of_nobody_says_how_to_add(fake: FakeService, capsys: Capture) -> None:
    fake.answers = {"GET /v1/notifiers": []}
    assert run(["notify", "list"]) == 0
    assert "expctl notify add NAME" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("found", "code", "words"),
    [
        (delivery(status="delivered", tries=[tried(200, None, "ok")]), 0, "infra: answered 200 after 0.12 s: ok"),
        (
            delivery(status="dead", tries=[tried(404, "answered 404 Not Found", "no_service")]),
            1,
            "infra: answered 404 Not Found after 0.12 s: no_service",
        ),
        (delivery(), 124, "infra: nobody has tried it yet: is a steward running? See `expctl doctor`"),
    ],
)
def test_a_test_shows_what_the_receiver_answered(fake: FakeService, capsys: Capture, found: Json, code: int, words: str) -> None:
    fake.answers = {"POST /v1/notifiers/infra/test": (202, delivery()), "GET /v1/deliveries/7": found}
    assert run(["notify", "test", "infra", "--timeout", "10ms"]) == code
    assert capsys.readouterr().err == f"{words}\n"


def test_rotating(fake: FakeService, capsys: Capture) -> None:
    fake.answers = {"POST /v1/notifiers/ci/rotate": notifier(name="ci", rotating=True, secret=SECRET)}
    assert run(["notify", "rotate", "ci"]) == 0
    assert capsys.readouterr().out == f"{SECRET}\n"
    fake.answers = {"POST /v1/notifiers/ci/rotate": notifier(name="ci", secret=None)}
    assert run(["notify", "rotate", "ci", "--finish"]) == 0
    assert capsys.readouterr() == ("", "ci signs with the new secret alone\n")


def test_what_became_of_the_messages(fake: FakeService, capsys: Capture) -> None:
    lost = delivery(status="dead", ended_because="given up after 10 tries")
    fake.answers = {"GET /v1/deliveries": {"items": [lost, delivery(id=6, attempts=2)], "next": None}}
    assert run(["notify", "deliveries", "--status", "dead", "--experiment", "42", "--no-color"]) == 0
    assert fake.asked == ["GET /v1/deliveries?status=dead&experiment=42&limit=20"]
    shown = " ".join(capsys.readouterr().out.split())
    assert "7 infra experiment.failed dead 42 x: failed given up after 10 tries 6 infra experiment.failed pending, 2 failed" in shown
    assert run(["notify", "deliveries", "--fields", "id,status"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"id": 7, "status": "dead"}, {"id": 6, "status": "pending"}]


def test_replay_enable_and_remove(fake: FakeService, capsys: Capture) -> None:
    fake.answers = {
        "POST /v1/deliveries/7/replay": delivery(),
        "POST /v1/notifiers/infra/enable": notifier(),
        "DELETE /v1/notifiers/infra": notifier(pending=3),
    }
    assert [run(["notify", *words]) for words in (["replay", "7"], ["enable", "infra"], ["remove", "infra"])] == [0, 0, 0]
    assert capsys.readouterr().err.splitlines() == [
        "delivery 7 to infra is sent again",
        "infra is told again of what happens from now on; what is dead is sent by `expctl notify replay ID`",
        "removed infra; 3 pending messages are not sent",
    ]
    assert run(["notify", "remove", " "]) == 2
