"""A night with a real vLLM: production parked, baseline and n-gram speculation measured, a verdict, production back as it was.

The engine is a CPU build with a tiny random model. The GPUs of the lab's hosts are made up, and this engine uses none: nothing here
proves anything about GPUs. What is proven is what a real engine does to a unit's fork: its log, its processes, its counters, its end.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from expctl.client import Client
from tests.lab.fleet import PRODUCTION, Fleet, begin
from tests.lab.host import Lab, LabHost, NewHost

pytestmark = pytest.mark.lab

FOLDER = "/var/lib/vllm"
UNIT = f"""\
[Unit]
Description=Production: a real vLLM with a tiny model
After=network.target

[Service]
User=vllm
WorkingDirectory={FOLDER}
Environment=HF_HUB_OFFLINE=1 VLLM_CPU_KVCACHE_SPACE=1 VLLM_NO_USAGE_STATS=1 HOME={FOLDER}
ExecStart={{lab}}/vllm/bin/vllm serve {{lab}}/tiny --served-model-name tiny --port 8000 --max-model-len 2048 \\
    --dtype bfloat16 --enforce-eager --generation-config vllm
Restart=on-failure
TimeoutStopSec=60

[Install]
WantedBy=multi-user.target
"""
HOST = ("--close-after", "5s", "--dead-man", "10m", "--run-as", "none")
"""Settings as they are by default where it matters: experiments run as production's own user."""
LOAD_S = 600.0
"""Seconds that a load may take where others use the machine too; alone, it takes half a minute."""
NGRAM = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}
BENCH = {"prompts": "five", "max_tokens": 32, "concurrency": [1, 4], "repeat": 1, "warmup": 1}
STORY = ("shift.opened", "production.parked", "experiment.started", "experiment.finished", "production.restored", "shift.closed")


@dataclass(frozen=True)
class Night:
    """One that is over: both experiments, and production before and after it."""

    fleet: Fleet
    ids: list[int]
    before: dict[str, Any]
    after: dict[str, Any]

    def item(self, which: int) -> dict[str, Any]:
        """One of both experiments."""
        return self.fleet.show(self.ids[which])

    def phases(self, which: int) -> list[dict[str, Any]]:
        """What it measured."""
        with Client(self.fleet.service.url) as client:
            found: list[dict[str, Any]] = client.results(self.ids[which])["phases"]
        return found

    def evidence(self, which: int, step: str) -> dict[str, Any]:
        """What a step wrote down."""
        [found] = [one["evidence"] for one in self.item(which)["steps"] if one["name"] == step]
        return dict(found)


def words_of(host: LabHost) -> list[str]:
    """The command line that production runs with."""
    return host.read(f"/proc/{host.show(PRODUCTION, 'MainPID')}/cmdline").rstrip("\0").split("\0")


def production(host: LabHost) -> dict[str, Any]:
    """What must be the same before and after."""
    text = host.read(f"/etc/systemd/system/{PRODUCTION}")
    enabled = host.run("systemctl", "is-enabled", PRODUCTION, check=False).stdout
    drop_ins = host.show(PRODUCTION, "DropInPaths")
    return {"sha256": hashlib.sha256(text.encode()).hexdigest(), "words": words_of(host), "enabled": enabled, "drop_ins": drop_ins}


@pytest.fixture(scope="module")
def serving(lab: Lab, new_shared_host: NewHost) -> LabHost:
    """A host whose production is the lab's real vLLM, and serves."""
    assert (lab.folder / "vllm/bin/vllm").exists(), f"the lab's vLLM is missing: run tests/lab/make_vllm.py {lab.folder}"
    host = new_shared_host(binds=lab.real_vllm)
    host.put_unit(PRODUCTION, UNIT.format(lab=lab.folder), enable=True)
    host.run("systemctl", "start", PRODUCTION)
    host.wait_serving(seconds=LOAD_S)
    return host


@pytest.fixture(scope="module", params=["root", "expctl"])
def night(serving: LabHost, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Night]:
    """Both experiments, submitted together and left alone: through root, and through a user who may only call the helper."""
    before = production(serving)
    fleet = begin(tmp_path_factory.mktemp("night"), serving, request.param, *HOST)
    try:
        if request.param != "root":
            assert serving.ssh("sudo", "-n", "id", user="expctl", check=False).returncode != 0, "it may do more than it is meant to"
        limits = {"timeout": LOAD_S, "stall": LOAD_S}
        base = fleet.submit("tiny base", fork=True, bench=BENCH, load=limits)
        ngram = fleet.submit("tiny ngram", fork=True, engine={"speculative": NGRAM}, bench=BENCH, load=limits)
        for one in (base, ngram):
            item = fleet.ended(one, 2 * LOAD_S)
            assert item["outcome"] == "succeeded", (item, fleet.worker_log()[-3000:], fleet.cli("logs", str(one)).stdout[-3000:])
        fleet.production_back(LOAD_S)
        yield Night(fleet, [base, ngram], before, production(serving))
    finally:
        fleet.end()
        serving.sudoers()


def test_production_serves_again_as_it_did_and_that_is_proven(night: Night) -> None:
    assert night.after == night.before
    [restored] = night.fleet.events("production.restored")
    assert restored["data"]["changed"] == []
    assert restored["data"]["proof"] == {PRODUCTION: "tiny answered"}
    assert "not_clean" not in restored["data"]
    [parked] = night.fleet.events("production.parked")
    assert parked["data"]["proven"] == {PRODUCTION: "tiny answered"}
    assert night.fleet.host_now()["blocked"] is None


def test_nothing_of_ours_is_left_on_the_host(night: Night) -> None:
    host = night.fleet.host
    assert host.run("systemctl", "list-units", "--plain", "--no-legend", "expctl-*").stdout == ""
    assert not host.exists("/etc/systemd/system/expctl-deadman.timer")
    main = host.show(PRODUCTION, "MainPID")
    assert host.run("pgrep", "-u", "vllm", "-f", "vllm serve|bin/vllm").stdout.split() == [main]


def test_the_events_tell_the_night_in_order(night: Night) -> None:
    told = [(event["type"], event["experiment_id"]) for event in night.fleet.events(*STORY)]
    middle = [(kind, one) for one in night.ids for kind in ("experiment.started", "experiment.finished")]
    assert told == [("shift.opened", None), ("production.parked", None), *middle, ("production.restored", None), ("shift.closed", None)]
    for one in night.ids:
        begun = [event["data"]["step"] for event in night.fleet.events("experiment.step") if event["experiment_id"] == one]
        assert list(dict.fromkeys(begun)) == ["clear", "launch", "load", "warm", "measure", "collect"]


def test_a_fork_is_production_s_command_but_for_what_was_asked(night: Night) -> None:
    base, ngram = (night.evidence(which, "launch") for which in (0, 1))
    for found in (base, ngram):
        assert found["from_unit"] == PRODUCTION
        assert found["seen_argv"][-len(found["argv"]) + 1 :] == found["argv"][1:], "the engine has renamed itself before anybody looked"
    at = base["seen_argv"].index("8001")
    assert [*base["seen_argv"][:at], "8000", *base["seen_argv"][at + 1 :]] == night.before["words"]
    added = [word for word in ngram["seen_argv"] if word not in base["seen_argv"]]
    assert added[0] == "--speculative-config"
    assert json.loads(added[1]) == NGRAM


def test_both_are_measured(night: Night) -> None:
    for which in (0, 1):
        item, phases = night.item(which), night.phases(which)
        assert item["facts"]["engine_version"].startswith("0.32.0")
        assert item["facts"]["served_model"] == "tiny"
        assert [phase["concurrency"] for phase in phases] == [1, 4]
        for phase in phases:
            assert phase["summary"]["valid"]
            assert len(phase["requests"]) == 5
            assert {request["tokens_from"] for request in phase["requests"]} == {"usage"}


def test_speculation_is_the_one_s_and_not_the_other_s(night: Night) -> None:
    assert {phase["speculation"]["status"] for phase in night.phases(0)} == {"off"}
    for phase in night.phases(1):
        assert phase["speculation"]["status"] == "on"
        assert phase["speculation"]["drafts"] > 0


def test_the_engines_log_is_kept(night: Night) -> None:
    log = night.fleet.good("logs", str(night.ids[1]))
    assert "speculative_config=SpeculativeConfig(method='ngram'" in log
    assert log.index("Starting to load model") < log.index("Application startup complete") < log.index("POST /v1/chat/completions")


def test_results_and_the_comparison_can_be_read(night: Night) -> None:
    base, ngram = map(str, night.ids)
    assert "tiny ngram" in night.fleet.good("results", ngram)
    comparison = json.loads(night.fleet.good("compare", base, ngram, "--json"))
    assert comparison["comparable"], comparison["why_not"]
    assert comparison["verdict"] in {"better", "worse", "no_difference_shown"}
    assert any(name.startswith("engine.speculative") for name in comparison["spec_differences"])
    assert "speculative" in night.fleet.good("compare", base, ngram)
