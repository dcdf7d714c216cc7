"""Cables that are pulled, power that is cut, connections that are dropped, while a host's production is parked."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.lab.aftermath import PATIENCE_S, event_of, given_back, loading, ours_running, queued_again, steps, unit_of, whole
from tests.lab.fleet import PRODUCTION, Fleet, begin
from tests.lab.host import LabHost, wait_for

pytestmark = pytest.mark.lab

Begin = Callable[..., Fleet]
OUTLASTS = ("--dead-man", "10m")
"""Longer than any outage here."""
BENCH = {"max_tokens": 150, "concurrency": [1, 4], "repeat": 6, "warmup": 1}
"""Long enough that something can happen meanwhile: some ten seconds a level."""


@pytest.fixture
def night(production_host: LabHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Begin]:
    """Begins one, given the user to log in as and options of `host add`."""
    made: list[Fleet] = []

    def start(user: str = "root", *options: str) -> Fleet:
        made.append(begin(tmp_path_factory.mktemp("service"), production_host, user, *options))
        return made[-1]

    yield start
    for one in made:
        one.end()


def outage(fleet: Fleet) -> None:
    """The cable is out until that is noticed."""
    with fleet.host.unplugged():
        event_of(fleet, "host.unreachable")
        assert fleet.host_now()["unreachable_since"] is not None


def told_once(fleet: Fleet) -> None:
    """Of an outage and of its end."""
    kinds = [event["type"] for event in fleet.events("host.unreachable", "host.recovered")]
    assert kinds == ["host.unreachable", "host.recovered"]
    assert fleet.host_now()["unreachable_since"] is None


def test_the_cable_is_out_during_a_load(night: Begin) -> None:
    fleet = night("root", *OUTLASTS)
    fleet.host.sim(LOAD_SECONDS="20")
    one = fleet.submit("x")
    invocation = loading(fleet, one, "x")
    fleet.host.sim(LOAD_SECONDS="1")
    outage(fleet)
    whole(fleet, one, "x", invocation)
    told_once(fleet)
    given_back(fleet)


def test_the_cable_is_out_during_a_measurement(night: Begin) -> None:
    fleet = night("root", *OUTLASTS)
    one = fleet.submit("x", bench=BENCH)
    item = fleet.at_step(one, "measure", PATIENCE_S)
    # What the load has done stands there until then, too.
    wait_for(lambda: fleet.show(one)["progress"].get("concurrency"), PATIENCE_S, "the first request is measured")
    outage(fleet)
    whole(fleet, one, "x", steps(item)["launch"]["invocation_id"], requests=30)
    spoilt = {key: again for key, again in steps(fleet.show(one))["measure"]["evidence"].items() if key.startswith("outages@")}
    assert list(spoilt.values()) == [1], spoilt
    told_once(fleet)
    given_back(fleet)


def test_the_cable_is_out_for_longer_than_the_dead_man_waits(night: Begin) -> None:
    fleet = night()
    fleet.host.sim(LOAD_SECONDS="300")
    one = fleet.submit("x")
    loading(fleet, one, "x")
    fleet.host.sim(LOAD_SECONDS="1")
    with fleet.host.unplugged():
        fleet.host.wait_serving(seconds=PATIENCE_S)
        assert ours_running(fleet) == []
        started = fleet.host.show(PRODUCTION, "InvocationID")
        assert fleet.show(one)["status"] == "running", "nobody here can know yet"
    queued = queued_again(fleet, one, "host_unreachable")
    assert "by itself" in queued["data"]["detail"]
    given_back(fleet)
    told_once(fleet)
    assert fleet.host.show(PRODUCTION, "InvocationID") == started
    [restored] = fleet.events("production.restored")
    assert "by itself" in restored["data"]["given_back_by_host"]
    assert "answered" in restored["data"]["proof"][PRODUCTION]


@pytest.mark.parametrize(("enabled", "user"), [(True, "root"), (True, "expctl"), (False, "root")])
def test_the_power_is_cut_during_a_load(night: Begin, enabled: bool, user: str) -> None:
    fleet = night(user)
    # While it boots, sshd answers, and all but root are turned away for a moment; here for longer.
    fleet.host.write("/etc/systemd/system/systemd-user-sessions.service.d/slow.conf", "[Service]\nExecStartPre=/bin/sleep 8\n")
    fleet.host.sim(LOAD_SECONDS="60")
    one = fleet.submit("x")
    loading(fleet, one, "x")
    fleet.host.sim(LOAD_SECONDS="1")
    if not enabled:
        fleet.host.run("systemctl", "disable", "-q", PRODUCTION)
    fleet.host.power_cut()
    fleet.host.boot()
    queued_again(fleet, one, "host_rebooted")
    given_back(fleet)
    started = fleet.host.run("journalctl", "-b", "-o", "cat", "--no-pager", "-u", PRODUCTION).stdout.count(f"Started {PRODUCTION}")
    assert started == 1, "what started by itself is accepted as it is"
    [restored] = fleet.events("production.restored")
    assert "rebooted" in restored["data"]["host_rebooted"]


def test_ssh_is_restarted_and_every_connection_dropped_during_a_load(night: Begin) -> None:
    fleet = night()
    fleet.host.sim(LOAD_SECONDS="12")
    one = fleet.submit("x")
    invocation = loading(fleet, one, "x")
    for _ in range(3):
        copied = len(fleet.good("logs", str(one)))
        fleet.host.restart_sshd()
        fleet.host.drop_connections()
        wait_for(lambda copied=copied: len(fleet.good("logs", str(one))) > copied, PATIENCE_S, "its log goes on")  # type: ignore[misc]
    assert fleet.host.active(unit_of(one, "x"))
    whole(fleet, one, "x", invocation)
    given_back(fleet)
    for event in fleet.events("host.recovered"):
        assert float(event["data"]["why"].split()[1]) < 10, event
