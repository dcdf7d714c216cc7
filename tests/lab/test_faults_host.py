"""What goes wrong with a host, not with an engine: production is not touched, or it is brought back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.fleet import PRODUCTION, Fleet, begin
from tests.lab.host import LabHost, NewHost, wait_for

pytestmark = pytest.mark.lab

UNIT_FILE = f"/etc/systemd/system/{PRODUCTION}"
SUDOERS = "/etc/sudoers.d/lab"
VARIABLES = "/etc/default/vllm-prod"
LONG = {"max_tokens": 400, "concurrency": [1], "repeat": 1, "warmup": 1}
SLOW = {"env": {"EXPCTL_SIM_PROFILE": "kimi-k2.5"}}

Begin = Callable[..., Fleet]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Begin]:
    """Begins fleets, each with a service of its own."""
    made: list[Fleet] = []

    def started(host: LabHost, user: str = "root") -> Fleet:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(begin(folder, host, user))
        return made[-1]

    yield started
    for fleet in made:
        fleet.end()


def run_of(host: LabHost) -> tuple[str, str]:
    """Which start of production this is."""
    return host.show(PRODUCTION, "InvocationID"), host.show(PRODUCTION, "MainPID")


def blocked(fleet: Fleet) -> str:
    """Why, once the host is blocked and its shift is closed."""

    def look() -> str | None:
        now = fleet.host_now()
        return now["blocked"] if now["shift"] is None else None

    try:
        return str(wait_for(look, 60, "the host is blocked"))
    except AssertionError as error:
        raise AssertionError(f"{error}\n{fleet.host_now()}\n{fleet.worker_log()[-4000:]}") from error


def refused(fleet: Fleet, one: int, before: tuple[str, str], *words: str) -> None:
    """Nobody has touched production, the experiment waits, and a person is told what to do."""
    why = blocked(fleet)
    for word in words:
        assert word in why
    assert run_of(fleet.host) == before
    assert fleet.host.is_serving()
    assert fleet.show(one)["status"] == "queued"
    assert fleet.events("production.parked") == []
    assert not fleet.host.exists("/var/lib/expctl-host/record.json")


def resume(fleet: Fleet) -> None:
    fleet.good("resume", "--host", fleet.host.name)


def test_nothing_is_stopped_that_might_not_come_back(new_host: NewHost, start: Begin) -> None:
    host = new_host(disk_mib=600)
    host.install_production()
    fleet, before = start(host, "expctl"), run_of(host)

    host.write(UNIT_FILE, host.read(UNIT_FILE).replace("RestartSec=1", "RestartSec=2"))
    one = fleet.submit("patient", fork=True)
    refused(fleet, one, before, "stale_unit_definition", "daemon-reload")
    host.run("systemctl", "daemon-reload")

    variables = host.read(VARIABLES)
    host.write(VARIABLES, variables.replace("models/production", "models/kimi"))
    resume(fleet)
    refused(fleet, one, before, "stale_unit_definition", "other values of MODEL; restart it yourself first")
    host.run("rm", VARIABLES)
    resume(fleet)
    refused(fleet, one, before, "stale_unit_definition", f"{VARIABLES}, which is gone")
    host.write(VARIABLES, variables)

    line = host.read(SUDOERS).strip()
    host.sudoers()
    resume(fleet)
    refused(fleet, one, before, "sudo_password_required")
    host.sudoers(line)

    host.change_host_key()
    resume(fleet)
    refused(fleet, one, before, "host_key_changed")
    assert fleet.cli("host", "trust", host.name, "--yes").returncode != 0, "a changed key is no new one"
    shown = host.run("ssh-keygen", "-lf", "/etc/ssh/ssh_host_ed25519_key.pub").stdout.split()[1]
    fleet.good("host", "trust", host.name, "--fingerprint", shown)

    with host.full_disk("/"):
        resume(fleet)
        refused(fleet, one, before, "disk_full")

    resume(fleet)
    item = fleet.ended(one)
    assert item["outcome"] == "succeeded", item
    fleet.production_back()
    [parked] = fleet.events("production.parked")
    assert "changed after it was started" in parked["data"]["warnings"][0], "files that were touched are a doubt, and told"
    assert run_of(host) != before
    assert fleet.host_now()["blocked"] is None


def test_no_room_for_a_unit(production_host: LabHost, start: Begin) -> None:
    host = production_host
    fleet = start(host)
    one = fleet.submit("cramped", engine=SLOW)
    fleet.at_step(one, "clear")
    with host.full_disk("/run"):
        item = fleet.ended(one)
        assert (item["outcome"], item["reason"]) == ("failed", "disk_full"), item
        assert "/run" in item["detail"]
    fleet.production_back(120)


def test_whoever_starts_production_by_hand_wins(production_host: LabHost, start: Begin) -> None:
    host = production_host
    fleet = start(host)
    one, two = fleet.submit("cut", engine=SLOW, bench=LONG), fleet.submit("next")
    fleet.at_step(one, "measure")
    host.run("systemctl", "start", PRODUCTION)
    by_hand = run_of(host)
    item = fleet.ended(one)
    assert (item["outcome"], item["reason"]) == ("failed", "production_started_by_hand"), item
    fleet.production_back()
    assert PRODUCTION in blocked(fleet)
    assert run_of(host) == by_hand, "it is left alone"
    assert fleet.show(two)["status"] == "queued"
    resume(fleet)
    assert fleet.ended(two)["outcome"] == "succeeded"
    fleet.production_back()


def test_two_installations_on_one_host(production_host: LabHost, start: Begin) -> None:
    host = production_host
    fleet, other = start(host), start(host)
    assert fleet.worker is not None
    one = fleet.submit("first", engine={"env": {"EXPCTL_SIM_LOAD_SECONDS": "40"}})
    fleet.at_step(one, "load")
    two = other.submit("second")
    why = blocked(other)
    assert "claim_lost" in why
    assert f":{fleet.worker.pid})" in why, "the holder is named"
    checked = other.cli("host", "check", host.name)
    assert checked.returncode == 1
    assert "remove it from one of them" in checked.stdout
    assert other.show(two)["status"] == "queued"
    assert other.events("production.parked") == []
    item = fleet.ended(one)
    assert item["outcome"] == "succeeded", item
    fleet.production_back()
    assert len(fleet.events("production.parked")) == 1
    assert fleet.events("host.blocked") == []


def test_gpus_that_somebody_else_holds(production_host: LabHost, start: Begin) -> None:
    host = production_host
    fleet = start(host)
    fleet.stop_worker()
    fleet.start_worker("tests.lab.hurried")
    pid = host.hold_gpus((3,), user="ops", name="train.py")
    item = fleet.ended(fleet.submit("crowded"), 120)
    assert (item["outcome"], item["reason"]) == ("failed", "held_by_other_user"), item
    assert f"pid {pid} train.py of ops" in item["detail"]
    fleet.production_back(90)
    assert "held_by_other_user" in blocked(fleet)
    [restored] = fleet.events("production.restored")
    assert f"pid {pid} train.py of ops" in restored["data"]["not_clean"]
    assert host.exists(f"/proc/{pid}"), "another's process is not ours to end"
