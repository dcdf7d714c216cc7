"""Notifiers and deliveries over HTTP: secrets once, addresses by their host, targets that are allowed."""

from __future__ import annotations

import json
import socket

import pytest

from service.api.app import create_app
from service.settings import Settings
from service.store import outbox
from service.store.database import Database
from tests.integration.api.service import Api, Hands, Json, problem
from workers.postman import Postman

SLACK = "https://hooks.slack.com/services/T000/B000/the-secret"
HOOK = "http://127.0.0.1:9/in?token=abc"


@pytest.fixture
def allowing(api: Api) -> Api:
    api.app = create_app(api.database, loopback_only=True, settings=Settings(notify_allow="127.0.0.1, *.corp.example"))
    return api


def ask(api: Api, method: str, path: str, body: Json | None = None) -> Json:
    answer = api.ask(method, path, json=body, headers={"host": "127.0.0.1", "x-expctl-user": "ann"})
    assert answer.is_success, answer.text
    found: Json = answer.json()
    return found


def add(api: Api, name: str = "hook", kind: str = "webhook", url: str = HOOK, **more: object) -> Json:
    return ask(api, "POST", "/v1/notifiers", {"name": name, "kind": kind, "url": url, **more})


def refused(api: Api, method: str, path: str, status: int, slug: str, body: Json | None = None) -> Json:
    return problem(api.ask(method, path, json=body, headers={"host": "127.0.0.1"}), status, slug)


def test_the_secret_is_shown_once(allowing: Api) -> None:
    made = add(allowing, default=True, events=["experiment.failed"], hosts=["local"])
    assert made["secret"].startswith("whsec_")
    assert made["url"] == "http://127.0.0.1:9/in?..."
    [listed] = allowing.ask("GET", "/v1/notifiers", headers={"host": "127.0.0.1"}).json()
    assert listed == {key: value for key, value in made.items() if key != "secret"}
    rotated = ask(allowing, "POST", "/v1/notifiers/hook/rotate")
    assert rotated["rotating"]
    assert rotated["secret"] not in {None, made["secret"]}
    refused(allowing, "POST", "/v1/notifiers/hook/rotate", 409, "conflict")
    finished = ask(allowing, "POST", "/v1/notifiers/hook/rotate", {"finish": True})
    assert (finished["secret"], finished["rotating"]) == (None, False)
    refused(allowing, "POST", "/v1/notifiers/hook/rotate", 409, "conflict", {"finish": True})


def test_an_address_of_slack_is_shown_by_its_host(allowing: Api) -> None:
    made = add(allowing, "infra", "slack", SLACK)
    assert (made["url"], made["secret"]) == ("https://hooks.slack.com/...", None)
    everything = [allowing.ask("GET", path, headers={"host": "127.0.0.1"}).text for path in ("/v1/notifiers", "/v1/notifiers/infra")]
    assert "the-secret" not in json.dumps([made, *everything])
    refused(allowing, "POST", "/v1/notifiers/infra/rotate", 409, "conflict")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"url": "https://hooks.example.org/x"}, "hooks.example.org is not in EXPCTL_NOTIFY_ALLOW"),
        ({"url": "http://10.0.0.5/x"}, "10.0.0.5 is not in EXPCTL_NOTIFY_ALLOW"),
        ({"url": "http://user:pass@127.0.0.1/x"}, "the URL holds a user or a password"),
        ({"url": "ftp://127.0.0.1/x"}, "the URL is not one of http or https"),
        ({"url": "http://hooks.slack.com/x", "kind": "slack"}, "Slack is reached by https only"),
        ({"url": SLACK}, "hooks.slack.com is not in EXPCTL_NOTIFY_ALLOW"),
        ({"events": ["experiment.exploded"]}, "there are: experiment.started, "),
        ({"hosts": ["gpu-9"]}, "known: local"),
        ({"name": "a b"}, "letters, digits, dots"),
    ],
)
def test_what_cannot_be_added(allowing: Api, changes: Json, why: str) -> None:
    body = {"name": "hook", "kind": "webhook", "url": HOOK, **changes}
    found = refused(allowing, "POST", "/v1/notifiers", 422, "invalid-input", body)
    assert found["detail"].startswith(why)
    assert not {"pass", "the-secret"} & set(json.dumps(found).replace("/", " ").replace(":", " ").split())


def test_a_name_that_stands_for_a_private_address_is_refused(allowing: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = {"x.corp.example": "10.1.2.3", "y.corp.example": "93.184.215.14"}
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_, **__: [(2, 1, 6, "", (addresses[host], 443))])
    body = {"name": "x", "kind": "webhook", "url": "https://x.corp.example/in"}
    found = refused(allowing, "POST", "/v1/notifiers", 422, "invalid-input", body)
    assert found["detail"].startswith("x.corp.example stands for 10.1.2.3, which is not public")
    assert found["todo"] == "an operator adds 10.1.2.3 (or its network) to EXPCTL_NOTIFY_ALLOW"
    assert add(allowing, "y", url="https://y.corp.example/in")["url"] == "https://y.corp.example/in"


def test_without_a_list_there_is_slack_alone(api: Api) -> None:
    api.app = create_app(api.database, loopback_only=True, settings=Settings())
    found = refused(api, "POST", "/v1/notifiers", 422, "invalid-input", {"name": "h", "kind": "webhook", "url": HOOK})
    assert found["detail"] == "EXPCTL_NOTIFY_ALLOW is empty, so only Slack (hooks.slack.com) is allowed"
    assert add(api, "infra", "slack", SLACK)["name"] == "infra"


def test_names_are_taken_once_and_known_by_kind(allowing: Api) -> None:
    add(allowing)
    refused(allowing, "POST", "/v1/notifiers", 409, "conflict", {"name": "hook", "kind": "webhook", "url": HOOK})
    assert ask(allowing, "GET", "/v1/notifiers/webhook:hook")["name"] == "hook"
    assert refused(allowing, "GET", "/v1/notifiers/slack:hook", 404, "not-found")["detail"] == "known: hook"
    ask(allowing, "DELETE", "/v1/notifiers/hook")
    refused(allowing, "DELETE", "/v1/notifiers/hook", 404, "not-found")


def test_a_test_is_tried_once_and_says_how_it_ended(allowing: Api) -> None:
    add(allowing)
    made = ask(allowing, "POST", "/v1/notifiers/hook/test")
    assert (made["status"], made["type"], made["attempts"]) == ("pending", "test", 0)
    Postman(allowing.database, Settings(notify_allow="127.0.0.1")).once()
    found = ask(allowing, "GET", f"/v1/deliveries/{made['id']}")
    assert (found["status"], len(found["tries"])) == ("dead", 1)
    assert found["tries"][0]["error"].startswith("ConnectError")
    assert found["message"]["headline"] == "Test message of expctl to hook"
    assert allowing.ask("GET", "/v1/deliveries?status=pending", headers={"host": "127.0.0.1"}).json()["items"] == []


def test_deliveries_are_paged_and_filtered(allowing: Api) -> None:
    add(allowing, default=True)
    add(allowing, "other", default=True)
    hands = Hands(allowing.database)
    for _ in range(3):
        ask(allowing, "POST", "/v1/experiments", {"name": "x", "engine": {"kind": "vllm", "model": "m"}})
        number = hands.take()
        hands.measure(number, 60.0)
        hands.finish(number)
    Postman(allowing.database, Settings()).collect()
    first = ask(allowing, "GET", "/v1/deliveries?notifier=hook&limit=2&status=pending")
    assert [(one["notifier"], one["experiment_id"]) for one in first["items"]] == [("hook", 3), ("hook", 2)]
    second = ask(allowing, "GET", first["next"])
    assert ([one["experiment_id"] for one in second["items"]], second["next"]) == ([1], None)
    assert len(ask(allowing, "GET", "/v1/deliveries?experiment=2")["items"]) == 2
    refused(allowing, "GET", "/v1/deliveries?notifier=nobody", 404, "not-found")
    refused(allowing, "GET", "/v1/deliveries/99", 404, "not-found")


def test_replay_and_enable(allowing: Api) -> None:
    add(allowing)
    number = ask(allowing, "POST", "/v1/notifiers/hook/test")["id"]
    refused(allowing, "POST", f"/v1/deliveries/{number}/replay", 409, "conflict")
    _answer(allowing.database, 410)
    shown = ask(allowing, "GET", "/v1/notifiers/hook")
    assert (shown["disabled_because"], shown["dead"], shown["pending"]) == ("the receiver answered 410 (gone)", 1, 0)
    for path in ("/v1/notifiers/hook/test", f"/v1/deliveries/{number}/replay"):
        assert refused(allowing, "POST", path, 409, "conflict")["todo"] == "enable it first: expctl notify enable hook"
    assert ask(allowing, "POST", "/v1/notifiers/hook/enable")["disabled_at"] is None
    assert ask(allowing, "POST", f"/v1/deliveries/{number}/replay")["status"] == "pending"


def _answer(database: Database, status: int) -> None:
    with database.write() as session:
        [claimed] = outbox.claim(session, 1.0, {}, 1)
        outbox.record(session, claimed, outbox.Attempted(status, f"answered {status}"), 1.0)
