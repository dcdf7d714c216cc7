"""A wire that breaks is waited for; everything else is news at once."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from service.domain.reasons import Reason
from workers.hosts.base import HostError, UnitDefinition
from workers.hosts.fake_production import FakeProductionHost
from workers.hosts.patient import PatientHost
from workers.hosts.transport import TransportError


@dataclass
class Watcher:
    most: int = 100
    lost_calls: list[bool] = field(default_factory=list)
    backs: int = 0

    def lost(self, error: TransportError, *, first: bool) -> None:
        self.lost_calls.append(first)
        if len(self.lost_calls) > self.most:
            raise HostError(error.reason, "it has lasted too long")

    def back(self) -> None:
        self.backs += 1


class Wire(FakeProductionHost):
    """Loses its wire for some calls."""

    broken: int = 0
    reason: Reason = Reason.HOST_UNREACHABLE

    def _called(self, call: str, about: str) -> None:
        super()._called(call, about)
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
