"""A wire that breaks is waited for; everything else is news at once."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import pytest

from service.domain.reasons import Reason
from workers.hosts import patient
from workers.hosts.base import HostBusy, HostError, UnitDefinition, UnitState
from workers.hosts.fake_production import FakeProductionHost
from workers.hosts.patient import PatientHost
from workers.hosts.transport import TransportError


@dataclass
class Watcher:
    most: int = 100
    lost_calls: list[bool] = field(default_factory=list)
    backs: int = 0
    busy_calls: list[HostBusy] = field(default_factory=list)

    def lost(self, error: TransportError, *, first: bool) -> None:
        self.lost_calls.append(first)
        if len(self.lost_calls) > self.most:
            raise HostError(error.reason, "it has lasted too long")

    def back(self) -> None:
        self.backs += 1

    def busy(self, error: HostBusy, since: float) -> None:
        assert since <= time.monotonic()
        self.busy_calls.append(error)
        if len(self.busy_calls) > self.most:
            raise error


class Wire(FakeProductionHost):
    """Loses its wire for some calls, or is busy for some."""

    broken: int = 0
    busy: int = 0
    reason: Reason = Reason.HOST_UNREACHABLE
    reasons: list[Reason] = []  # noqa: RUF012 - each test sets its own

    def _called(self, call: str, about: str) -> None:
        super()._called(call, about)
        if self.busy:
            self.busy -= 1
            raise HostBusy(Reason.REMOTE_COMMAND_FAILED, "another call is at work")
        if self.reasons:
            raise TransportError(self.reasons.pop(0), "as it boots", "not_executed")
        if self.broken:
            self.broken -= 1
            raise TransportError(self.reason, "no route", "not_executed")


def test_a_call_is_repeated_until_the_host_answers() -> None:
    wire, watcher = Wire(), Watcher()
    host = PatientHost(wire, watcher)
    wire.broken = 3
    host.start_unit(UnitDefinition("expctl-1-x", ("x",)))
    assert host.unit("expctl-1-x").phase == "active"
    assert (watcher.lost_calls, watcher.backs, host.outages) == ([True, False, False], 1, 1)


def test_what_another_call_works_on_is_waited_for_and_no_outage() -> None:
    wire, watcher = Wire(), Watcher(most=2)
    host = PatientHost(wire, watcher)
    wire.busy = 2
    host.units()
    assert (len(watcher.busy_calls), watcher.lost_calls, host.outages) == (2, [], 0)
    wire.busy = 2
    with pytest.raises(HostBusy):
        host.units()


def test_a_host_that_boots_refuses_logins_for_a_while() -> None:
    wire, watcher = Wire(), Watcher()
    wire.reasons = [Reason.CONNECTION_REFUSED, Reason.AUTH_FAILED, Reason.AUTH_FAILED]
    PatientHost(wire, watcher).units()
    assert (watcher.lost_calls, watcher.backs) == ([True, False, False], 1)
    wire.reasons = [Reason.AUTH_FAILED]
    with pytest.raises(TransportError):
        PatientHost(wire, watcher).units()


def test_each_outage_counts_once() -> None:
    wire, watcher = Wire(), Watcher()
    host = PatientHost(wire, watcher)
    for _ in range(2):
        wire.broken = 2
        host.units()
    assert (host.outages, watcher.backs) == (2, 2)


@pytest.mark.parametrize("reason", [Reason.HOST_KEY_CHANGED, Reason.AUTH_FAILED, Reason.REMOTE_COMMAND_FAILED, Reason.HOST_KEY_UNKNOWN])
def test_what_will_not_pass_by_itself_is_not_waited_for(reason: Reason) -> None:
    wire, watcher = Wire(), Watcher()
    wire.broken, wire.reason = 1, reason
    with pytest.raises(TransportError):
        PatientHost(wire, watcher).gpus()
    assert watcher.lost_calls == []


def test_a_command_that_failed_is_no_outage() -> None:
    wire, watcher = Wire(), Watcher()
    wire.fail("units", Reason.DISK_FULL)
    with pytest.raises(HostError):
        PatientHost(wire, watcher).units()
    assert watcher.lost_calls == []


def test_patience_ends() -> None:
    wire, watcher = Wire(), Watcher(most=2)
    wire.broken = 10
    with pytest.raises(HostError, match="too long"):
        PatientHost(wire, watcher).facts()


def looks(monkeypatch: pytest.MonkeyPatch, *took_s: float) -> PatientHost:
    """A host that is looked at as often, each look taking so long."""
    host, now = PatientHost(FakeProductionHost(), Watcher()), [0.0]
    monkeypatch.setattr(patient.time, "monotonic", lambda: now[0])
    inner = host._host.unit

    for seconds in took_s:

        def look(name: str, seconds: float = seconds) -> UnitState:
            now[0] += seconds
            return inner(name)

        monkeypatch.setattr(host._host, "unit", look)
        host.unit("x")
    return host


@pytest.mark.parametrize(
    ("took_s", "stalls"),
    [
        ((0.1, 0.1, 12.0, 0.1), 1),
        ((0.1, 12.0, 0.1, 0.1, 0.1, 20.0), 2),
        ((12.0, 0.1), 0),
        ((0.1, 7.0), 0),
        ((2.0, 12.0, 12.0, 12.0), 0),
    ],
    ids=["once", "twice", "the first connects", "a busy host", "a slow host"],
)
def test_a_look_that_takes_unusually_long_is_a_stall(monkeypatch: pytest.MonkeyPatch, took_s: tuple[float, ...], stalls: int) -> None:
    host = looks(monkeypatch, *took_s)
    assert (host.stalls, host.outages) == (stalls, 0)


def test_an_outage_is_no_stall_too(monkeypatch: pytest.MonkeyPatch) -> None:
    wire, watcher = Wire(), Watcher()
    host, now = PatientHost(wire, watcher), iter(float(20 * second) for second in range(100))
    host.unit("x")
    monkeypatch.setattr(patient.time, "monotonic", lambda: next(now))
    wire.broken = 1
    host.unit("x")
    assert (host.stalls, host.outages) == (0, 1)
