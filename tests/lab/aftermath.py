"""What every test of a fault asks for in the end: one load, every request once, production back, the shift closed."""

from __future__ import annotations

import json
from typing import Any

from tests.lab.fleet import Fleet
from tests.lab.host import wait_for

LEVELS = (1, 4)
STEPS = ["clear", "launch", "load", "warm", "measure", "collect"]
PATIENCE_S = 150.0
"""The machine that carries the lab may be busy."""


def unit_of(one: int, name: str) -> str:
    """The unit of an experiment."""
    return f"expctl-{one}-{name}.service"


def steps(item: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The steps of an experiment by name; of several attempts, the last."""
    return {step["name"]: step for step in item["steps"]}


def loading(fleet: Fleet, one: int, name: str) -> str:
    """Wait until an experiment's engine has been started and loads; its invocation."""
    fleet.at_step(one, "load", PATIENCE_S)
    invocation: str = steps(fleet.show(one))["launch"]["invocation_id"]
    assert fleet.host.show(unit_of(one, name), "InvocationID") == invocation
    return invocation


def in_phase(fleet: Fleet, phase: str) -> None:
    """Wait until the host's shift is at that."""
    wait_for(lambda: (fleet.host_now()["shift"] or {}).get("phase") == phase, PATIENCE_S, f"the shift is {phase}")


def event_of(fleet: Fleet, kind: str, seconds: float = PATIENCE_S) -> dict[str, Any]:
    """The first event of a kind, as soon as there is one."""
    try:
        return wait_for(lambda: fleet.events(kind), seconds, f"the event {kind}")[0]
    except AssertionError as error:
        raise AssertionError(f"{error}\n{fleet.host_now()}\n{fleet.worker_log()[-6000:]}") from error


def ours_running(fleet: Fleet) -> list[str]:
    """Units of experiments that live on the host."""
    states = "--state=active,activating,deactivating"
    listed = fleet.host.run("systemctl", "list-units", "--no-legend", "--plain", states, "expctl-*.service")
    return [line.split()[0] for line in listed.stdout.splitlines() if not line.startswith("expctl-deadman")]


def whole(fleet: Fleet, one: int, name: str, invocation: str | None = None, requests: int = 5) -> None:
    """One success, one start, one load, every request and every line once."""
    item = fleet.ended(one, PATIENCE_S)
    assert item["outcome"] == "succeeded", (item, fleet.worker_log()[-6000:])
    assert [step["name"] for step in item["steps"]] == STEPS
    kinds = [event["type"] for event in fleet.events() if event["experiment_id"] == one]
    assert kinds.count("experiment.started") == kinds.count("experiment.finished") == 1
    if invocation is not None:
        assert steps(item)["launch"]["invocation_id"] == invocation
    assert fleet.host.journal(unit_of(one, name)).count(f"Started {unit_of(one, name)}") == 1
    assert fleet.good("logs", str(one)).count("Starting to load model") == 1
    phases = json.loads(fleet.good("results", str(one), "--json"))["phases"]
    assert [(phase["concurrency"], len(phase["requests"])) for phase in phases] == [(level, requests) for level in LEVELS]
    assert all(request["ok"] for phase in phases for request in phase["requests"])


def given_back(fleet: Fleet, times: int = 1) -> None:
    """Production serves, the shift is closed, nothing of ours is left, and nobody has to come."""
    fleet.production_back(PATIENCE_S)
    kinds = [event["type"] for event in fleet.events()]
    for kind in ("shift.opened", "production.parked", "production.restored", "shift.closed"):
        assert kinds.count(kind) == times, (kind, kinds)
    assert ours_running(fleet) == []
    assert not fleet.host.exists("/var/lib/expctl-host/record.json"), "the dead-man is still armed"
    now = fleet.host_now()
    assert (now["blocked"], now["needs_person"]) == (None, False)


def queued_again(fleet: Fleet, one: int, reason: str) -> dict[str, Any]:
    """Wait until an experiment was put back for that reason, and take it out of the queue, so that the host stays as it is."""
    told = event_of(fleet, "experiment.requeued")
    assert (told["data"]["reason"], told["experiment_id"]) == (reason, one), (told, fleet.worker_log()[-6000:])
    fleet.good("cancel", str(one))
    return told
