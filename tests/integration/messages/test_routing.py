"""Who is told what: by the experiment, by its host, by default; outages in one message; nights once."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from service.domain.errors import SpecError
from service.domain.events import EventType
from service.domain.reasons import Reason
from service.domain.spec import Spec
from service.domain.status import Outcome
from service.store import hosts, notifiers, shifts, submission
from tests.integration.messages.night import Night
from workers.mailroom import Mailroom

URL = "http://127.0.0.1:9/hook"


def told(night: Night) -> dict[str, list[str]]:
    """Notifier to the types of its messages, once everything is collected."""
    mailroom = Mailroom(night.database)
    while mailroom.sort():
        pass
    with night.database.read() as session:
        names = {row.id: row.name for row in notifiers.every(session)}
    found: dict[str, list[str]] = defaultdict(list)
    for row in night.deliveries():
        found[names[row.notifier_id]].append(row.type)
    return dict(found)


def test_the_experiment_before_its_host_before_the_default(night: Night) -> None:
    for name, more in {"named": {"default": False}, "of-host": {"hosts": ["local"]}, "rest": {}, "other": {"default": False}}.items():
        night.notifier(name, URL, **more)
    night.fail(notify=["webhook:named"])
    assert told(night) == {"named": ["experiment.failed"]}
    night.fail()
    assert told(night) == {"named": ["experiment.failed"], "of-host": ["experiment.failed"]}
    with night.database.write() as session:
        hosts.register(session, "elsewhere", "local", {})
        submission.submit(session, _spec("e", host="elsewhere"), "ann")
        notifiers.remove(session, "of-host", "ann")
    night.fail()
    assert told(night) == {"named": ["experiment.failed"], "rest": ["experiment.failed"]}


def _spec(name: str, **more: object) -> Spec:
    return Spec.model_validate({"name": name, "engine": {"kind": "vllm", "model": "m"}, **more})


def test_a_name_that_leads_nowhere_is_refused_at_submit_and_falls_back_later(night: Night) -> None:
    night.notifier("rest", URL)
    night.notifier("gone", URL, default=False)
    with night.database.write() as session, pytest.raises(SpecError, match="notify: slack:gone is not known here"):
        submission.submit_all(session, [_spec("x", notify=["slack:gone"])], "ann")
    night.submit(notify=["gone"])
    with night.database.write() as session:
        notifiers.remove(session, "gone", "ann")
    night.end(night.hands.take(), Reason.ENGINE_DEAD)
    assert told(night) == {"rest": ["experiment.failed"]}
    assert "It names gone in its notify list, which is not there or is disabled." in night.deliveries()[0].body["lines"]


def test_one_lost_name_among_others_brings_the_default_in(night: Night) -> None:
    for name, default in {"rest": True, "gone": False, "mine": False}.items():
        night.notifier(name, URL, default=default)
    night.submit(notify=["gone", "mine"])
    with night.database.write() as session:
        notifiers.remove(session, "gone", "ann")
    night.end(night.hands.take(), Reason.ENGINE_DEAD)
    assert told(night) == {"rest": ["experiment.failed"], "mine": ["experiment.failed"]}


def test_each_is_told_from_when_it_was_added(night: Night) -> None:
    night.notifier("early", URL)
    night.fail()
    night.notifier("late", URL)
    night.fail()
    assert told(night) == {"early": ["experiment.failed", "experiment.failed"], "late": ["experiment.failed"]}


def test_only_what_was_chosen(night: Night) -> None:
    night.notifier("usual", URL)
    night.notifier("starts", URL, chosen=["experiment.started"])
    night.notifier("ends", URL, chosen=["experiment.finished"])
    night.notifier("fails", URL, chosen=["experiment.failed"])
    night.succeed()
    night.fail()
    night.cancel(night.submit())
    assert told(night) == {
        "usual": ["experiment.finished", "experiment.failed"],
        "starts": ["experiment.started", "experiment.started"],
        "ends": ["experiment.finished", "experiment.failed"],
        "fails": ["experiment.failed"],
    }


def test_the_verdict_against_a_named_and_a_pinned_baseline(night: Night) -> None:
    night.notifier("rest", URL)
    base = night.succeed("base", tps=60.0)
    night.succeed("k=3", tps=80.0, baseline="base")
    night.succeed("k=5", tps=60.1, baseline=base)
    told(night)
    assert [row.body["headline"] for row in night.deliveries()] == [
        "1 base: 60.0 tok/s",
        "2 k=3: +33.1 % tok/s vs 1",
        "3 k=5: no difference shown vs 1 (+0.2 % tok/s measured)",
    ]
    assert night.deliveries()[1].body["data"]["comparison"]["verdict"] == "better"


def test_an_outage_is_one_message_that_names_what_it_hit(night: Night) -> None:
    night.notifier("rest", URL)
    night.notifier("mine", URL, default=False)
    running = night.submit("big load", notify=["mine"])
    waiting = night.submit("waits", after=[running])
    night.hands.take()
    night.event(EventType.HOST_UNREACHABLE, why="no route")
    # Another process goes on from here: nothing of an outage is lost with the one that saw its beginning.
    assert told(night) == {"rest": ["host.unreachable"], "mine": ["host.unreachable"]}
    night.end(running, Reason.HOST_UNREACHABLE)
    assert told(night) == {"rest": ["host.unreachable"], "mine": ["host.unreachable"]}
    night.event(EventType.HOST_RECOVERED, why="after 300 s")
    both = ["host.unreachable", "host.recovered"]
    assert told(night) == {"rest": both, "mine": both}
    lost, back = (night.deliveries()[index].body for index in (0, 2))
    assert lost["headline"] == "local does not answer: hit 1 big load"
    assert back["headline"] == "local answers again after 300 s"
    assert [one["id"] for one in back["data"]["experiments"]] == [running, waiting]
    assert "1 big load (Failed in load: the host does not answer)" in back["lines"][0]
    night.fail("later", Reason.CONNECTION_LOST)
    assert told(night)["rest"] == [*both, "experiment.failed"]


def test_other_ends_during_an_outage_are_told_by_themselves(night: Night) -> None:
    night.notifier("rest", URL)
    running = night.submit()
    night.hands.take()
    night.event(EventType.HOST_UNREACHABLE, why="no route")
    night.end(running, Reason.CUDA_OUT_OF_MEMORY)
    assert told(night) == {"rest": ["host.unreachable", "experiment.failed"]}


def test_what_happens_to_hosts_workers_and_production(night: Night) -> None:
    night.notifier("rest", URL)
    night.event(EventType.HOST_BLOCKED, why="gpu_lost: card 3")
    night.event(EventType.HOST_BLOCKED, why=f"{hosts.NOT_RESTORED}: a.service is not active")
    night.event(EventType.PRODUCTION_NOT_RESTORED, units=["a.service"], why="a.service is not active", tried_for_s=10800.0)
    night.event(EventType.PRODUCTION_RESTORED, units=["a.service"], after_s=90.0, away_s=3600.0, proof={"a.service": "one token"})
    night.event(EventType.WORKER_SILENT, worker="gpu:1", why="its lease ran out")
    night.event(EventType.WORKER_BACK, worker="gpu:2")
    looked = {"gpu memory": "stands at 60 GiB"}
    night.event(EventType.LOAD_STALLED, night.succeed(), silent_s=900.0, limit_s=1800.0, where="weights_loading at 45 %", looked_at=looked)
    told(night)
    assert night.deliveries()[-1].body["lines"] == ["gpu memory: stands at 60 GiB", "It is given up after 30 min."]
    assert [row.body["headline"] for row in night.deliveries()] == [
        "local is blocked: gpu_lost: card 3",
        "local: PRODUCTION IS NOT RESTORED (a.service)",
        "local: production serves again (a.service)",
        "The worker of local is silent (gpu:1)",
        "1 x: 60.0 tok/s",
        "1 x: no sign of progress for 15 min, in weights_loading at 45 %",
    ]


def close_nights(night: Night, now: datetime | None = None) -> list[dict[str, Any]]:
    Mailroom(night.database).close_nights(now)
    return [row.body for row in night.deliveries() if row.type == "night.digest"]


def test_a_night_is_told_once_when_its_queue_is_empty(night: Night) -> None:
    night.notifier("rest", URL)
    base = night.succeed("base", tps=60.0)
    night.succeed("k=3", tps=80.0, baseline=base)
    night.fail("bad", Reason.CUDA_OUT_OF_MEMORY)
    assert close_nights(night) == [], "a shift is open"
    night.close_shift()
    waiting = night.submit("more")
    assert close_nights(night) == [], "more is to come"
    night.cancel(waiting)
    [digest] = close_nights(night)
    assert close_nights(night) == [digest]
    assert str(digest["headline"]).endswith(": 2 done, 1 failed, 0 s GPU time")
    assert "Best: 2 k=3, +33.1 % tok/s vs 1." in digest["lines"]
    assert "1 because the engine ran out of GPU memory: 3." in digest["lines"]
    table = str(digest["code"]).splitlines()
    assert [line.split()[0] for line in table] == ["ID", "2", "1"]
    night.succeed("the next night")
    night.close_shift()
    assert str(close_nights(night)[1]["headline"]).endswith(": 1 done, 0 s GPU time")


def test_a_group_of_hosts_has_one_digest(night: Night) -> None:
    with night.database.write() as session:
        hosts.register(session, "second", "local", {})
        other = hosts.claim(session, "second", "hands", 3600.0)
    night.notifier("rest", URL)
    night.notifier("only", URL, hosts=["second"])
    assert other is not None
    night.succeed()
    night.close_shift()
    with night.database.write() as session:
        submission.submit(session, _spec("there", host="second"), "ann")
    assert close_nights(night) == [], "the other host of the group has work"
    first, night.hands.lease = night.hands.lease, other
    night.hands.finish(night.hands.take(), Outcome.FAILED, Reason.ENGINE_DEAD)
    night.close_shift()
    night.hands.lease = first
    headlines = {str(one["data"]["hosts"]): one["headline"] for one in close_nights(night)}
    assert {key: str(value).split(": ", 1)[1][:16] for key, value in headlines.items()} == {
        "['local', 'second']": "1 done, 1 failed",
        "['second']": "1 failed, GPU ti",
    }


PARKED = {"units": [{"name": "a.service"}], "parked_at": 1.0}


@pytest.mark.parametrize(
    ("parked", "said", "proven"),
    [
        (PARKED | {"restored_at": 2.0, "away_s": 3600.0}, "a.service serves again, proven with a token, after 1 h", True),
        (PARKED | {"not_restored_at": 2.0}, "a.service is NOT RESTORED", False),
        ({}, "production was not stopped", True),
    ],
)
def test_the_digest_comes_when_the_window_has_closed_and_says_how_production_is(
    night: Night, parked: dict[str, object], said: str, proven: bool
) -> None:
    night.notifier("rest", URL)
    now = datetime.now(UTC)
    opens, closes = now - timedelta(hours=2), now + timedelta(hours=2)
    window = f"{opens:%H}:00-{closes:%H}:00"
    night.host(config={"units": "systemd", "park": ["a.service"], "window": window})
    night.fail()
    with night.database.write() as session:
        row = shifts.current(session, night.hands.lease.host_id)
        assert row is not None
        row.parked = dict(parked)
        session.add(row)
    if "not_restored_at" not in parked:
        night.close_shift()
    assert close_nights(night, now) == [], "the window is open: more may be submitted"
    [digest] = close_nights(night, now + timedelta(hours=3))
    assert f"local: {said}." in digest["lines"]
    assert digest["data"]["production"] == [{"host": "local", "proven": proven, "text": said}]
    assert ("PRODUCTION NOT PROVEN" in str(digest["headline"])) is not proven


def test_a_host_that_is_away_for_long_keeps_nobodys_digest_waiting(night: Night) -> None:
    night.notifier("rest", URL)
    night.fail()
    night.host(unreachable_since=datetime.now(UTC))
    assert close_nights(night) == []
    night.host(unreachable_since=datetime.now(UTC) - timedelta(hours=1))
    assert len(close_nights(night)) == 1
