"""An outage is told once, waited for, and told again when it is over; the dead-man is renewed by who holds the host."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from sqlalchemy import update

from service.domain.errors import ClaimLost
from service.domain.events import EventType
from service.domain.reasons import Reason
from service.store import events, hosts
from service.store.database import Database
from service.store.hosts import Lease
from service.store.tables import HostRow
from tests.integration.workers.night import claim
from workers.deadman import DeadMan
from workers.hosts.base import HostBusy, HostError, ParkedUnit
from workers.hosts.fake_production import FakeProductionHost
from workers.hosts.transport import TransportError
from workers.outage import BUSY_S, Outage

LOST = TransportError(Reason.HOST_UNREACHABLE, "no route to gpu0", "not_executed")


def told(database: Database) -> list[EventType]:
    with database.read() as session:
        return [event.type for event in events.since(session) if event.type.startswith("host.")]


def nothing(*_: object) -> None:
    """Neither checks nor waits."""


def taken_over(database: Database) -> Lease:
    """The lease ran out, and another worker has the host."""
    with database.write() as session:
        session.execute(update(HostRow).values(lease_expires=1.0))
        lease = hosts.claim(session, "local", "other")
    assert lease is not None
    return lease


def eventually(look: Callable[[], object]) -> None:
    tick = threading.Event()
    for _ in range(400):
        if look():
            return
        tick.wait(0.025)
    pytest.fail("not true within 10 s")


def test_it_is_told_once(database: Database) -> None:
    outage = Outage(database, claim(database), nothing, nothing)
    for first in (True, False, False):
        outage.lost(LOST, first=first)
    with database.read() as session:
        assert hosts.by_name(session, "local").unreachable_since is not None
    outage.back()
    assert told(database) == [EventType.HOST_UNREACHABLE, EventType.HOST_RECOVERED]
    with database.read() as session:
        assert hosts.by_name(session, "local").unreachable_since is None


def test_a_worker_that_takes_over_tells_nothing_twice(database: Database) -> None:
    Outage(database, claim(database), nothing, nothing).lost(LOST, first=True)
    lease = taken_over(database)
    second = Outage(database, lease, nothing, nothing)
    second.lost(LOST, first=True)
    assert told(database) == [EventType.HOST_UNREACHABLE]


def test_patience_ends_with_the_wire_s_own_reason(database: Database) -> None:
    outage = Outage(database, claim(database), nothing, nothing, patience_s=-1.0)
    with pytest.raises(HostError, match="no answer") as caught:
        outage.lost(LOST, first=True)
    assert caught.value.reason == Reason.HOST_UNREACHABLE
    assert not isinstance(caught.value, TransportError), "or it would be waited for again"


def test_who_asked_to_stop_is_heard_while_waiting(database: Database) -> None:
    def lost_claim() -> None:
        raise ClaimLost("somebody else has it")

    with pytest.raises(ClaimLost):
        Outage(database, claim(database), lost_claim, nothing).lost(LOST, first=True)


def test_a_busy_host_is_waited_for_but_not_for_ever(database: Database) -> None:
    waits: list[float] = []
    outage = Outage(database, claim(database), nothing, waits.append)
    busy = HostBusy(Reason.REMOTE_COMMAND_FAILED, "another call is at work")
    outage.busy(busy, time.monotonic())
    assert (len(waits), told(database)) == (1, [])
    with pytest.raises(HostBusy):
        outage.busy(busy, time.monotonic() - 2 * BUSY_S)


def parked_host() -> FakeProductionHost:
    host = FakeProductionHost("local")
    host.serve("p.service")
    host.arm(60, [ParkedUnit("p.service", "sha", ())])
    host.calls.clear()
    return host


def test_the_dead_man_is_renewed_while_production_is_parked(database: Database) -> None:
    host, lease = parked_host(), claim(database)
    with DeadMan(database, lease, lambda: host, ttl_s=0.06) as dead_man:
        threading.Event().wait(0.1)
        assert host.calls == [], "nothing is parked yet"
        dead_man.watch(parked=True)
        eventually(lambda: host.calls.count(("arm", "again")) >= 3)
    assert dead_man.fired is None


def test_who_lost_the_host_renews_nothing(database: Database) -> None:
    host, lease = parked_host(), claim(database)
    with DeadMan(database, lease, lambda: host, ttl_s=0.06) as dead_man:
        dead_man.watch(parked=True)
        eventually(lambda: host.calls)
        taken_over(database)
        threading.Event().wait(0.1)
        host.calls.clear()
        threading.Event().wait(0.1)
        assert host.calls == []


def test_a_dead_man_that_fired_is_noticed(database: Database) -> None:
    host, lease = parked_host(), claim(database)
    host.fire("2026-01-01T03:00:00Z")
    with DeadMan(database, lease, lambda: host, ttl_s=0.06) as dead_man:
        dead_man.watch(parked=True)
        eventually(lambda: dead_man.fired)
    assert dead_man.fired is not None
    assert dead_man.fired.fired_at == "2026-01-01T03:00:00Z"


def test_a_beat_that_fails_is_tried_again(database: Database) -> None:
    host, lease = parked_host(), claim(database)
    host.fail("arm", Reason.CONNECTION_LOST, times=2)
    with DeadMan(database, lease, lambda: host, ttl_s=0.06) as dead_man:
        dead_man.watch(parked=True)
        eventually(lambda: host.calls.count(("arm", "again")) >= 4)
    assert dead_man.fired is None
