"""Engines that do what engines do. Each costs its own experiment and no other, and production serves in the end."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.lab.fleet import Fleet, begin
from tests.lab.host import LabHost, wait_for

pytestmark = pytest.mark.lab

KNOWN_WITHIN_S = 15.0


@pytest.fixture
def fleet(production_host: LabHost, tmp_path: Path) -> Iterator[Fleet]:
    made = begin(tmp_path, production_host)
    yield made
    made.end()


def other_server(host: LabHost, port: int) -> None:
    """Somebody's program that answers /health as an engine does."""
    host.write("/srv/other/health", "fine", owner="ops:ops")
    start = ["systemd-run", "-q", f"--unit=other-{port}.service", "--uid=ops", "--property=WorkingDirectory=/srv/other"]
    host.run(*start, "python3", "-m", "http.server", str(port))
    wait_for(lambda: host.is_serving(port), 20, f"the other server is on port {port}")


def step_of(item: dict[str, Any], name: str) -> dict[str, Any]:
    [found] = [step for step in item["steps"] if step["name"] == name]
    return dict(found)


def seconds_from_launch(item: dict[str, Any]) -> float:
    began = datetime.fromisoformat(step_of(item, "launch")["started_at"])
    return (datetime.fromisoformat(item["finished_at"]) - began).total_seconds()


def unit_of(item: dict[str, Any]) -> str:
    return f"expctl-{item['id']}-{item['name']}.service"


def nothing_left(fleet: Fleet) -> None:
    """Production serves, and of ours nothing runs and nothing is armed."""
    fleet.production_back(90)
    assert fleet.host_now()["shift"] is None
    states = fleet.host.run("systemctl", "list-units", "--plain", "--no-legend", "--state=active", "expctl-*").stdout
    assert states == ""
    assert not fleet.host.exists("/etc/systemd/system/expctl-deadman.timer")


def test_each_costs_one_experiment(fleet: Fleet) -> None:
    host = fleet.host
    other_server(host, 8002)
    orphan = host.hold_gpus(range(8), user="vllm", name="VLLM::EngineCore", orphan=True)
    # Its program says nothing of being a simulation, so that the model is looked for.
    for name in ("config.json", "model.safetensors"):
        host.write(f"/srv/models/production/{name}", "nobody reads this")
    fleet.good("pause", "--host", host.name)
    taken = fleet.submit("taken", engine={"port": 8002})
    sound = fleet.submit("sound")
    flag = fleet.submit("flag", fork=True, engine={"args": {"no-such-flag": "1"}})
    absent = fleet.submit("absent", engine={"executable": "/opt/vllm/bin/none"})
    leaves = fleet.submit("leaves", fork=True, engine={"executable": "/usr/bin/true"})
    fleet.good("resume", "--host", host.name)

    item = fleet.ended(taken)
    assert (item["outcome"], item["reason"]) == ("failed", "port_in_use")
    assert "port 8002" in item["detail"]
    assert "http.server" in item["detail"]

    item = fleet.ended(sound)
    assert item["outcome"] == "succeeded", item
    assert step_of(item, "clear")["evidence"]["orphans_ended"] == [f"pid {orphan} (VLLM::EngineCore)"]
    assert not host.exists(f"/proc/{orphan}")

    item = fleet.ended(flag)
    assert (item["outcome"], item["reason"]) == ("failed", "bad_arguments")
    assert "no-such-flag" in item["evidence"]
    assert seconds_from_launch(item) < KNOWN_WITHIN_S

    item = fleet.ended(absent)
    assert (item["outcome"], item["reason"]) == ("failed", "exec_failed")

    item = fleet.ended(leaves)
    assert (item["outcome"], item["reason"]) == ("failed", "engine_dead")
    assert "exit status 0" in item["detail"]
    nothing_left(fleet)
    assert fleet.host_now()["blocked"] is None


def test_three_in_a_row_end_the_night(fleet: Fleet) -> None:
    host = fleet.host
    fleet.good("pause", "--host", host.name)
    slow = {"env": {"EXPCTL_SIM_PROFILE": "kimi-k2.5"}}
    killed = fleet.submit("killed", engine=slow, bench={"max_tokens": 400, "concurrency": [1], "repeat": 1, "warmup": 1})
    hangs = fleet.submit("hangs", engine={"env": {"EXPCTL_SIM_FAULT": "hang_at=45"}}, load={"stall": 5})
    late = fleet.submit("late", engine={"env": {"EXPCTL_SIM_LOAD_SECONDS": "60"}})
    spared = fleet.submit("spared")
    fleet.good("resume", "--host", host.name)

    host.run("systemctl", "kill", "-s", "KILL", unit_of(fleet.at_step(killed, "measure")))
    item = fleet.ended(killed)
    assert (item["outcome"], item["reason"]) == ("failed", "engine_dead"), item
    assert "signal 9" in item["detail"]

    item = fleet.ended(hangs)
    assert (item["outcome"], item["reason"]) == ("failed", "no_progress"), item
    assert "5 s" in item["detail"]

    # Not before its engine has bound the port: earlier, it would find the port taken, and end by itself.
    wait_for(lambda: any(event["experiment_id"] == late for event in fleet.events("load.progress")), 60, "the load of `late` shows")
    other_server(host, 8001)
    item = fleet.ended(late)
    assert (item["outcome"], item["reason"]) == ("failed", "wrong_server_on_port"), item
    assert "http.server" in item["detail"]

    nothing_left(fleet)
    assert fleet.show(spared)["status"] == "queued"
    assert "3 different configurations failed" in fleet.host_now()["blocked"]
    assert [event["data"]["experiment"] for event in fleet.events("shift.tripped")] == [late]
