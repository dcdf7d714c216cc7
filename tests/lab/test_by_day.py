"""Who may have the host when: the window, a shift outside it, a rehearsal, a pause, and production wanted back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.fleet import PRODUCTION, SHUT, Fleet, begin
from tests.lab.host import LabHost, wait_for

pytestmark = pytest.mark.lab

LOADS_LONG = {"env": {"EXPCTL_SIM_LOAD_SECONDS": "90"}}


@pytest.fixture
def fleet(production_host: LabHost, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    made = begin(tmp_path, production_host, "root", *getattr(request, "param", ()))
    yield made
    made.end()


def pid_of(fleet: Fleet) -> str:
    return fleet.host.show(PRODUCTION, "MainPID")


def looked(fleet: Fleet) -> None:
    """Once the worker has looked at the host it has looked at the queue, too."""
    fleet.good("host", "check", fleet.host.name)
    wait_for(lambda: not fleet.host_now()["busy"], 30, "the worker is idle")


def requeued(fleet: Fleet, one: int) -> dict[str, Any]:
    """The event that says so, once it is there."""
    found = wait_for(lambda: [item for item in fleet.events("experiment.requeued") if item["experiment_id"] == one], 60)
    return found[0]


@pytest.mark.parametrize("fleet", [("--window", SHUT)], indirect=True)
def test_by_day_production_is_stopped_by_an_admins_word_alone(fleet: Fleet) -> None:
    before = pid_of(fleet)
    waits = fleet.submit("waits")
    assert "waits for the window" in fleet.show(waits)["where_text"]
    looked(fleet)
    assert fleet.events("shift.opened") == []
    assert pid_of(fleet) == before

    told = json.loads(fleet.good("host", "rehearse", fleet.host.name, "--yes", "--json"))
    assert told["ok"]
    assert told["answer"]["downtime_s"] > 0
    assert [step["name"] for step in told["answer"]["steps"]] == ["survey", "restore"]
    assert pid_of(fleet) not in {before, "0"}
    assert fleet.host.is_serving()
    assert fleet.show(waits)["status"] == "queued"

    urgent = fleet.submit("urgent", now=True)
    for one in (waits, urgent):
        assert fleet.ended(one)["outcome"] == "succeeded"
    fleet.production_back()
    after = pid_of(fleet)
    assert fleet.host_now()["open_by"] is None

    later = fleet.submit("later")
    looked(fleet)
    assert fleet.show(later)["status"] == "queued"
    assert pid_of(fleet) == after
    assert len(fleet.events("shift.opened")) == 2, "the rehearsal's and the one that was allowed"


def test_a_pause_lets_what_runs_finish(fleet: Fleet) -> None:
    first, second = fleet.submit("first", engine={"env": {"EXPCTL_SIM_LOAD_SECONDS": "8"}}), fleet.submit("second")
    fleet.at_step(first, "load")
    fleet.good("pause", "--host", fleet.host.name)
    assert fleet.ended(first)["outcome"] == "succeeded"
    fleet.production_back()
    assert fleet.show(second)["status"] == "queued"
    fleet.good("resume", "--host", fleet.host.name)
    assert fleet.ended(second)["outcome"] == "succeeded"
    fleet.production_back()


def test_production_wanted_back_stays_back(fleet: Fleet) -> None:
    name = fleet.host.name
    cut, waits = fleet.submit("cut", engine=LOADS_LONG), fleet.submit("waits")
    fleet.at_step(cut, "load")
    fleet.good("host", "give-back", name)
    assert requeued(fleet, cut)["data"]["reason"] == "window_closed"
    fleet.production_back()
    back = pid_of(fleet)
    looked(fleet)
    assert [fleet.show(one)["status"] for one in (cut, waits)] == ["queued", "queued"]
    assert "is paused" in fleet.show(waits)["where_text"]
    assert pid_of(fleet) == back
    assert len(fleet.events("shift.opened")) == 1

    fleet.good("cancel", str(cut))
    fleet.good("resume", "--host", name)
    assert fleet.ended(waits)["outcome"] == "succeeded"
    fleet.production_back()
