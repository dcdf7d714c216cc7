"""Processes of ours that are killed, frozen or asked to go, while a real host is in their hands."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.lab.aftermath import PATIENCE_S, STEPS, given_back, in_phase, loading, ours_running, queued_again, steps, unit_of, whole
from tests.lab.fleet import HELPER, PRODUCTION, Fleet, begin
from tests.lab.host import LabHost, wait_for

pytestmark = pytest.mark.lab

LOAD = {"clear": "1", "launch": "2", "load": "8"}
"""Seconds, so that a kill hits the step that it is meant for."""
LONG = {"max_tokens": 150, "concurrency": [1, 4], "repeat": 1, "warmup": 5}


@pytest.fixture
def fleet(production_host: LabHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    made = begin(tmp_path_factory.mktemp("service"), production_host)
    yield made
    made.end()


@pytest.mark.parametrize("step", STEPS)
def test_the_worker_is_killed_in_every_step(fleet: Fleet, step: str) -> None:
    fleet.host.sim(LOAD_SECONDS=LOAD.get(step, "1"))
    one = fleet.submit("x", bench=LONG)
    item = fleet.at_step(one, step, PATIENCE_S)
    fleet.kill_worker()
    fleet.start_worker()
    whole(fleet, one, "x", steps(item).get("launch", {}).get("invocation_id"))
    given_back(fleet)


@pytest.mark.parametrize("stop_s", ["3", "50"])
def test_the_worker_is_killed_while_it_parks(fleet: Fleet, stop_s: str) -> None:
    """50: what the killed worker has asked of the host goes on there, longer than the next one's first call waits."""
    fleet.host.write(f"/etc/systemd/system/{PRODUCTION}.d/slow.conf", f"[Service]\nExecStop=/bin/sleep {stop_s}\nTimeoutStopSec=90\n")
    fleet.host.run("systemctl", "daemon-reload")
    one = fleet.submit("x")
    in_phase(fleet, "parking")
    wait_for(lambda: fleet.host.show(PRODUCTION, "ActiveState") == "deactivating", PATIENCE_S)
    fleet.kill_worker()
    fleet.start_worker()
    whole(fleet, one, "x")
    given_back(fleet)


def test_the_worker_is_killed_while_it_restores(fleet: Fleet) -> None:
    fleet.host.sim(LOAD_SECONDS="6")
    one = fleet.submit("x")
    in_phase(fleet, "restoring")
    wait_for(lambda: fleet.host.active(PRODUCTION), PATIENCE_S)
    started = fleet.host.show(PRODUCTION, "InvocationID")
    fleet.kill_worker()
    fleet.start_worker()
    whole(fleet, one, "x")
    given_back(fleet)
    assert fleet.host.show(PRODUCTION, "InvocationID") == started, "what loads already is not started again"


def test_the_api_is_killed(fleet: Fleet) -> None:
    fleet.host.sim(LOAD_SECONDS="6")
    one = fleet.submit("x")
    invocation = loading(fleet, one, "x")
    old = fleet.service.kill("api")
    wait_for(lambda: fleet.service.children().get("api") not in {None, old})
    wait_for(lambda: fleet.cli("queue").returncode == 0)
    whole(fleet, one, "x", invocation)
    given_back(fleet)


def test_a_worker_that_is_asked_to_go_leaves_the_load_to_the_next_one(fleet: Fleet) -> None:
    fleet.host.sim(LOAD_SECONDS="20")
    one = fleet.submit("x")
    invocation = loading(fleet, one, "x")
    asked = time.monotonic()
    assert fleet.stop_worker() == 0
    assert time.monotonic() - asked < 15
    assert fleet.host.active(unit_of(one, "x"))
    assert not fleet.host_now()["busy"], "it has handed the host over, and nobody has to wait for the end of its lease"
    fleet.start_worker()
    whole(fleet, one, "x", invocation)
    given_back(fleet)


def test_a_frozen_worker_that_wakes_up_touches_nothing(fleet: Fleet) -> None:
    fleet.host.sim(LOAD_SECONDS="12")
    one = fleet.submit("x")
    invocation = loading(fleet, one, "x")
    frozen = fleet.worker
    assert frozen is not None
    wait_for(lambda: frozen_between_transactions(fleet, frozen.pid))
    fleet.start_worker()
    second = fleet.worker
    assert second is not None
    wait_for(lambda: (fleet.host_now()["worker"] or "").endswith(f":{second.pid}"), PATIENCE_S)
    wait_for(lambda: audited(fleet)[-1]["claim"]["owner"].endswith(f":{second.pid}"), PATIENCE_S)
    os.kill(frozen.pid, signal.SIGCONT)
    try:
        wait_for(lambda: "claim lost" in fleet.worker_log(), PATIENCE_S)
        whole(fleet, one, "x", invocation)
    finally:
        frozen.terminate()
        frozen.wait(60)
    given_back(fleet)
    # What is asked in a claim's name is written into the host's log before anything else: nobody has even tried.
    fences = [line["claim"]["fence"] for line in audited(fleet)]
    assert fences == sorted(fences)
    refused_by_fence(fleet, frozen.pid)


def frozen_between_transactions(fleet: Fleet, pid: int) -> bool:
    """Stop a worker; not in the middle of a transaction, for there is one write lock."""
    os.kill(pid, signal.SIGSTOP)
    with closing(sqlite3.connect(fleet.service.data / "expctl.db", timeout=0.1, isolation_level=None)) as raw:
        try:
            raw.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            os.kill(pid, signal.SIGCONT)
            return False
    return True


def audited(fleet: Fleet) -> list[dict[str, Any]]:
    """What the helper has written into the host's log: every call that was to change something."""
    said = fleet.host.run("journalctl", "-t", "expctl-host", "-o", "cat", "--no-pager").stdout
    return [line for line in map(json.loads, said.splitlines()) if line.get("claim")]


def refused_by_fence(fleet: Fleet, pid: int) -> None:
    """Had it tried after all, the host would have said no."""
    claim = next(line["claim"] for line in audited(fleet) if line["claim"]["owner"].endswith(f":{pid}"))
    done = fleet.host.run(HELPER, "stop", stdin=json.dumps({"claim": claim, "unit": PRODUCTION}), check=False)
    assert json.loads(done.stdout)["reason"] == "claim_lost"
    assert fleet.host.is_serving()


@pytest.mark.parametrize("reboot", [False, True])
def test_everything_of_ours_is_killed(fleet: Fleet, reboot: bool) -> None:
    fleet.host.sim(LOAD_SECONDS="300")
    one = fleet.submit("x")
    loading(fleet, one, "x")
    fleet.kill_worker()
    fleet.service.kill_all()
    fleet.host.sim(LOAD_SECONDS="1")
    if reboot:
        fleet.host.run("systemctl", "disable", "-q", PRODUCTION)
        fleet.host.power_cut()
        fleet.host.boot()
    assert not fleet.host.is_serving()
    fleet.host.wait_serving(seconds=PATIENCE_S)
    assert ours_running(fleet) == []
    started = fleet.host.show(PRODUCTION, "InvocationID")
    # Who comes back later finds that the host has kept its promise.
    fleet.service.start()
    fleet.start_worker()
    queued_again(fleet, one, "host_rebooted" if reboot else "host_unreachable")
    given_back(fleet)
    assert fleet.host.show(PRODUCTION, "InvocationID") == started
    [restored] = fleet.events("production.restored")
    assert "by itself" in restored["data"]["given_back_by_host"]
