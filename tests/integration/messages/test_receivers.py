"""What receivers answer, and what they get to see."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from service.domain.events import EventType
from service.store import notifiers
from tests.integration.messages.night import START, Night
from tests.integration.messages.receiver import OK, Receiver

on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
"""Where the database has no part in it."""


@on_sqlite
@pytest.mark.parametrize("status", [429, 503])
def test_a_receiver_that_asks_for_a_pause_gets_one(night: Night, receiver: Receiver, status: int) -> None:
    night.notifier("hook", receiver.url)
    receiver.says((status, {"retry-after": "120"}, "slow down"))
    night.fail("a")
    postman = night.postman()
    postman.once()
    receiver.says(OK)
    night.fail("b")
    night.clock.now = START + 119
    assert postman.once() == 0
    night.clock.now = START + 121
    assert postman.once() == 2
    assert sorted(got.about for got in receiver.got) == [("experiment.failed", 1), ("experiment.failed", 2)]


def test_a_receiver_that_is_gone_is_told_nothing_more(night: Night, receiver: Receiver) -> None:
    night.notifier("hook", receiver.url, chosen=["experiment.started", "experiment.failed"])
    receiver.says((410, {}, "gone"))
    night.fail("a")
    postman = night.postman()
    postman.once()
    night.fail("b")
    postman.once()
    assert len(receiver.tried) == 1
    first, second = night.deliveries()
    assert first.ended_because == "the receiver answered 410: it wants no more messages"
    assert (second.status, second.ended_because) == ("dead", "notifier hook was disabled: the receiver answered 410 (gone)")
    [event] = night.happened(EventType.NOTIFIER_DISABLED)
    assert event.data == {"notifier": "hook", "why": "the receiver answered 410 (gone)", "ended": 1}
    assert len(night.happened(EventType.DELIVERY_FAILED)) == 1
    with night.database.write() as session:
        notifiers.enable(session, "hook", "ann")
    receiver.says(OK)
    number = night.fail("c")
    postman.once()
    assert [got.about for got in receiver.got] == [("experiment.started", number), ("experiment.failed", number)]


@on_sqlite
def test_nobody_is_followed_elsewhere(night: Night, receivers: Callable[[], Receiver]) -> None:
    receiver, elsewhere = receivers(), receivers()
    night.notifier("hook", receiver.url)
    receiver.says((307, {"location": elsewhere.url}, ""))
    night.fail()
    night.postman().once()
    assert elsewhere.tried == []
    assert night.attempts()[0].error == "answered 307, a redirect, and redirects are not followed"
    assert {row.status for row in night.deliveries()} == {"pending"}


@on_sqlite
def test_slack_gets_blocks_and_its_address_is_nowhere(night: Night, receiver: Receiver) -> None:
    night.notifier("infra", receiver.url, kind="slack")
    receiver.answer = lambda got: (404, {}, f"no_service for {got.path}")
    night.fail("a <!channel> b")
    night.postman().once()
    [got] = receiver.tried
    assert "webhook-signature" not in got.headers
    assert "<!channel>" not in got.text
    assert got.body["blocks"][0]["type"] == "header"
    assert got.body["text"].startswith("❌ 1 a &lt;!channel&gt; b: failed in load")
    [tried] = night.attempts()
    assert tried.answer == "no_service for /***"
    assert "secret-part" not in json.dumps([row.model_dump(mode="json") for row in (*night.attempts(), *night.deliveries())])
    assert "secret-part" not in json.dumps([row.data for row in night.happened(EventType.NOTIFIER_ADDED)])


@on_sqlite
def test_while_a_secret_changes_both_sign(night: Night, receiver: Receiver) -> None:
    old = night.notifier("hook", receiver.url)
    with night.database.write() as session:
        new = notifiers.rotate(session, "hook", "ann").secret
    night.fail()
    night.postman().once()
    assert old and new and old != new  # noqa: PT018 - one thought
    for secret in (old, new):
        Webhook(secret).verify(receiver.got[0].text, receiver.got[0].headers)
    with night.database.write() as session:
        notifiers.rotate(session, "hook", "ann", finish=True)
    night.fail()
    night.postman().once()
    Webhook(new).verify(receiver.got[-1].text, receiver.got[-1].headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(old).verify(receiver.got[-1].text, receiver.got[-1].headers)


@on_sqlite
def test_an_address_that_is_allowed_no_more_gets_nothing(night: Night, receiver: Receiver) -> None:
    night.notifier("hook", receiver.url)
    night.fail()
    night.postman(notify_allow="").once()
    assert receiver.tried == []
    assert "EXPCTL_NOTIFY_ALLOW is empty" in (night.attempts()[0].error or "")
    night.clock.now += 10
    night.postman(notify_allow="what?!").once()
    assert "cannot be read" in (night.attempts()[1].error or "")
