"""Messages to a real receiver: each once, in order, through outages, crashes and slow neighbours."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy.exc import OperationalError
from sqlmodel import Session
from standardwebhooks import Webhook, WebhookVerificationError

from service.domain.backoff import DELAYS_S
from service.domain.errors import Conflict
from service.domain.events import EventType
from service.store import notifiers, outbox
from tests.integration.messages.night import Night
from tests.integration.messages.receiver import OK, Answer, Got, Receiver
from workers.mailroom import Mailroom
from workers.notify import slack

DOWN: Answer = (502, {}, "bad gateway")
on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
"""Where the database has no part in it."""


def test_what_happened_arrives_signed(night: Night, receiver: Receiver) -> None:
    secret = night.notifier("hook", receiver.url)
    number = night.succeed("base")
    assert night.postman(base_url="https://expctl.example").once() == 1
    [got] = receiver.got
    assert got.about == ("experiment.finished", number)
    assert got.body["data"]["links"]["open"] == f"https://expctl.example/e/{number}"
    assert secret is not None
    assert Webhook(secret).verify(got.text, got.headers) == got.body
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(got.text.replace("base", "bass"), got.headers)
    assert [(row.status, row.attempts) for row in night.deliveries()] == [("delivered", 0)]
    [tried] = night.attempts()
    assert (tried.http_status, tried.error, tried.answer) == (200, None, "ok")


def test_nothing_is_told_twice_and_nothing_of_before(night: Night, receiver: Receiver) -> None:
    night.succeed("before anybody listened")
    night.notifier("hook", receiver.url)
    number = night.succeed("after")
    postman = night.postman()
    assert (postman.once(), postman.once(), night.postman().once()) == (1, 0, 0)
    assert [got.about for got in receiver.got] == [("experiment.finished", number)]


def test_an_hour_without_receiver_brings_everything_once_and_in_order(night: Night, receiver: Receiver) -> None:
    night.notifier("hook", receiver.url, chosen=["experiment.started", "experiment.failed"])
    receiver.says(DOWN)
    postman = night.postman()
    wanted: list[tuple[str, int | None]] = []
    for minute in range(6):
        number = night.fail(f"run {minute}")
        wanted += [("experiment.started", number), ("experiment.failed", number)]
        postman.once()
        night.clock.now += 600
        postman.once()
    assert receiver.got == []
    assert {one.about[0] for one in receiver.tried} == {"experiment.started"}, "a later message went before its earlier one"
    receiver.says(OK)
    number = night.fail("the first after it")
    wanted += [("experiment.started", number), ("experiment.failed", number)]
    postman.once()  # no time has passed: the first success brings all the others forward
    assert sorted(got.about for got in receiver.got) == sorted(wanted)
    for experiment in {one for _, one in wanted}:
        assert [got.about[0] for got in receiver.got if got.about[1] == experiment] == ["experiment.started", "experiment.failed"]
    assert len({got.id for got in receiver.got}) == len(wanted)
    assert {row.status for row in night.deliveries()} == {"delivered"}


def test_it_is_tried_by_the_schedule_and_then_given_up_once(night: Night, receiver: Receiver) -> None:
    night.notifier("hook", receiver.url)
    receiver.says(DOWN)
    number = night.fail("x")
    night.close_shift()
    night.host(paused=True)
    postman = night.postman()
    postman.collect()
    moments: list[float] = []
    for delay in (0.0, *DELAYS_S):
        night.clock.now += delay - 0.001
        assert not [one for one in receiver.tried if one.about[1] == number][len(moments) :]
        postman.once()
        night.clock.now += 0.002
        postman.once()
        moments.append(night.clock.now)
    assert len([one for one in receiver.tried if one.about[1] == number]) == 1 + len(DELAYS_S)
    assert len({one.id for one in receiver.tried if one.about[1] == number}) == 1
    [row] = [row for row in night.deliveries() if row.experiment_id == number]
    assert (row.status, row.ended_because) == ("dead", "given up after 10 tries, the last: answered 502 Bad Gateway")
    [event] = [event for event in night.happened(EventType.DELIVERY_FAILED) if event.experiment_id == number]
    assert event.data == {"delivery": row.id, "notifier": "hook", "type": "experiment.failed", "why": row.ended_because}


def test_a_dead_or_delivered_one_is_sent_again_under_its_id(night: Night, receiver: Receiver) -> None:
    night.notifier("hook", receiver.url)
    number = night.succeed()
    night.postman().once()
    [row] = [row for row in night.deliveries() if row.experiment_id == number]
    for _ in range(2):
        with night.database.write() as session:
            outbox.replay(session, row.id or 0, "ann")
        with night.database.write() as session, pytest.raises(Conflict, match="on its way"):
            outbox.replay(session, row.id or 0, "ann")
        night.postman().once()
    assert [got.id for got in receiver.got if got.about[1] == number] == [row.message_id] * 3
    assert [event.actor for event in night.happened(EventType.DELIVERY_REPLAYED)] == ["ann", "ann"]


def test_a_slow_receiver_keeps_nobody_waiting(night: Night, receivers: Callable[[], Receiver]) -> None:
    slow, quick = receivers(), receivers()
    release = threading.Event()

    def hang(_: Got) -> Answer:
        release.wait(20)
        return OK

    slow.answer = hang
    night.notifier("slow", slow.url, chosen=["experiment.failed"])
    night.notifier("quick", quick.url, chosen=["experiment.failed"])
    for _ in range(8):
        night.fail()
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(night.postman().run, stop)
        deadline = time.monotonic() + 20
        tick = threading.Event()
        while len(quick.got) < 8 and time.monotonic() < deadline:
            tick.wait(0.02)
        held = list(slow.tried)
        release.set()
        while len(slow.got) < 8 and time.monotonic() < deadline:
            tick.wait(0.02)
        stop.set()
        running.result(20)
    assert len(held) == 4, "a few at a time, and no more than that"
    assert len(quick.got) == len(slow.got) == 8
    assert {row.status for row in night.deliveries()} == {"delivered"}


def test_two_postmen_send_each_message_once(night: Night, receiver: Receiver) -> None:
    night.notifier("hook", receiver.url, chosen=["experiment.started", "experiment.failed"])
    numbers = [night.fail() for _ in range(4)]
    with ThreadPoolExecutor(2) as pool:
        tries = sum(pool.map(lambda postman: postman.once(), (night.postman(), night.postman())))
    assert tries == len(receiver.got) == 8
    assert len({got.id for got in receiver.got}) == 8
    for number in numbers:
        assert [got.about[0] for got in receiver.got if got.about[1] == number] == ["experiment.started", "experiment.failed"]


@on_sqlite
@pytest.mark.parametrize(("kind", "says_so"), [("slack", True), ("webhook", False)])
def test_a_reader_at_slack_is_told_that_it_may_be_a_repeat(
    night: Night, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, kind: str, says_so: bool
) -> None:
    night.notifier("x", receiver.url, kind=kind)
    night.fail()
    with monkeypatch.context() as killed:
        killed.setattr(outbox, "record", lambda *_: (_ for _ in ()).throw(MemoryError))
        killed.setattr("workers.postman.log.error", lambda *_, **__: None)
        night.postman().once()
    night.clock.now += outbox.CLAIM_S + 1
    night.postman().once()
    assert [slack.REPEATED in got.text for got in receiver.got] == [False, says_so]


@on_sqlite
@pytest.mark.parametrize("unsure", [True, False])
def test_only_a_try_that_nobody_knows_the_end_of_is_perhaps_a_repeat(night: Night, receiver: Receiver, unsure: bool) -> None:
    night.notifier("hook", receiver.url)
    night.fail()
    night.postman().collect()

    def taken() -> list[outbox.Claimed]:
        with night.database.write() as session:
            return outbox.claim(session, night.clock.now, {}, 4)

    [first] = taken()
    with night.database.write() as session:
        outbox.record(session, first, outbox.Attempted(error="no", unsure=unsure), night.clock.now)
    assert taken() == []
    night.clock.now += DELAYS_S[0] + 1
    assert [one.perhaps_sent for one in [first, *taken()]] == [False, unsure]


def test_killed_between_sending_and_writing_it_down(night: Night, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    night.notifier("hook", receiver.url)
    night.fail()

    def killed(*_: object) -> None:
        raise MemoryError

    night.postman().collect()
    with night.database.write() as session:
        assert len(outbox.claim(session, night.clock.now, {}, 1)) == 1
    assert night.postman().once() == 0, "it is claimed"
    night.clock.now += outbox.CLAIM_S + 1
    with monkeypatch.context() as patched:
        patched.setattr(outbox, "record", killed)
        patched.setattr("workers.postman.log.error", lambda *_, **__: None)
        assert night.postman().once() >= 1
    assert night.attempts() == []
    night.clock.now += outbox.CLAIM_S + 1
    night.postman().once()
    assert [got.id for got in receiver.got] == [night.deliveries()[0].message_id] * 2
    assert len(night.deliveries()) == len(night.attempts()) == 1


def test_killed_before_the_messages_are_made(night: Night, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    night.notifier("hook", receiver.url)
    night.fail("a")
    night.fail("b")
    made = outbox.put
    calls: list[int] = []

    def killed(*arguments: object, **more: object) -> object:
        calls.append(1)
        if len(calls) == 2:
            raise MemoryError
        return made(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(outbox, "put", killed)
    mailroom = Mailroom(night.database)
    with pytest.raises(MemoryError):
        mailroom.sort()
    assert night.deliveries() == [], "a message without its neighbour, and without the mark"
    monkeypatch.setattr(outbox, "put", made)
    mailroom.sort()
    assert [row.experiment_id for row in night.deliveries()] == [1, 2]


def test_who_read_the_same_events_later_makes_nothing(night: Night, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    night.notifier("hook", receiver.url)
    night.fail()
    with night.database.read() as session:
        seen, _ = outbox.mark(session)
    mailroom, move = Mailroom(night.database), outbox.move_mark
    with monkeypatch.context() as patched:
        patched.setattr(outbox, "move_mark", lambda *_: False)  # somebody else was first
        assert mailroom.sort()
    assert night.deliveries() == []
    mailroom.sort()  # and it was not as far as we had looked
    assert len(night.deliveries()) == 1
    with night.database.write() as session:
        assert not move(session, seen, seen + 99, {})


@on_sqlite
def test_a_database_that_is_away_when_a_message_has_arrived(night: Night, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    night.notifier("hook", receiver.url)
    night.fail()
    record, calls = outbox.record, []

    def away(*arguments: object) -> None:
        calls.append(arguments)
        if len(calls) < 3:
            raise OperationalError("UPDATE", {}, Exception("gone"))
        record(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(outbox, "record", away)
    monkeypatch.setattr("workers.postman.PAUSE_S", 0.0)
    monkeypatch.setattr("workers.postman.log.warning", lambda *_, **__: None)
    assert night.postman().once() == 1
    assert (len(receiver.got), len(calls), night.deliveries()[0].status) == (1, 3, "delivered")


@on_sqlite
def test_a_message_that_cannot_be_made_is_told_in_short(night: Night, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    night.notifier("hook", receiver.url)
    monkeypatch.setattr("workers.mailroom.log.exception", lambda *_, **__: None)

    def odd(session: Session, *_: object, **__: object) -> object:
        del session
        raise ZeroDivisionError

    monkeypatch.setattr("service.store.telling.experiment_facts", odd)
    night.fail()
    night.event(EventType.HOST_BLOCKED, why="the card fell off")
    night.postman().collect()
    assert [row.body["headline"] for row in night.deliveries()] == [
        "experiment.finished on local, experiment 1",
        "local is blocked: the card fell off",
    ]


def test_a_notifier_that_is_removed_takes_its_messages_along(night: Night, receiver: Receiver) -> None:
    night.notifier("hook", receiver.url)
    night.fail()
    postman = night.postman()
    postman.collect()
    with night.database.write() as session:
        claimed = outbox.claim(session, night.clock.now, {}, 4)
    with night.database.write() as session:
        notifiers.remove(session, "hook", "ann")
    with night.database.write() as session:
        outbox.record(session, claimed[0], outbox.Attempted(200), night.clock.now)
    assert (night.deliveries(), night.attempts()) == ([], [])
    assert night.happened(EventType.NOTIFIER_REMOVED)[0].data == {"notifier": "hook", "pending": 1}
