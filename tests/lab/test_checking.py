"""`expctl host check` and `host trust`: what is missing is found by day, each with its remedy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.fleet import HELPER, PRODUCTION, Fleet, begin
from tests.lab.host import GpuState, LabHost

pytestmark = pytest.mark.lab

BROKEN = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
UNIT_FILE = f"/etc/systemd/system/{PRODUCTION}"


@pytest.fixture
def fleet(production_host: LabHost, tmp_path: Path) -> Iterator[Fleet]:
    """Its host has never been seen before."""
    production_host.known_hosts.write_text("")
    made = begin(tmp_path, production_host, "expctl", "--production-address", production_host.url(8000))
    yield made
    made.end()


def check(fleet: Fleet) -> list[dict[str, Any]]:
    """Every check; the exit status says whether one is wrong."""
    done = fleet.cli("host", "check", fleet.host.name, "--json")
    found: list[dict[str, Any]] = json.loads(done.stdout)["answer"]["checks"]
    assert done.returncode == int(any(one["ok"] is False for one in found)), done.stderr
    return found


def wrong(fleet: Fleet) -> dict[str, str]:
    """What is wrong: name -> what was found, and the remedy."""
    return {one["name"]: f"{one['found']} | {one['remedy']}" for one in check(fleet) if one["ok"] is False}


def test_each_lack_comes_with_its_remedy(fleet: Fleet) -> None:
    host, name = fleet.host, fleet.host.name
    before = host.show(PRODUCTION, "MainPID")

    found = wrong(fleet)
    assert list(found) == ["connection"]
    assert f"expctl host trust {name}" in found["connection"].replace("NAME", name)
    assert fleet.cli("host", "trust", name).returncode != 0, "nobody is there to say that the key is right"
    fleet.good("host", "trust", name, "--yes")
    assert wrong(fleet) == {}
    assert {one["ok"] for one in check(fleet)} == {True}

    kept = host.read(HELPER)
    host.run("rm", HELPER)
    assert "expctl host install" in wrong(fleet)["host helper"]
    host.write(HELPER, kept, mode=0o755)

    text = host.read(UNIT_FILE)
    host.write(UNIT_FILE, text + "# edited\n")
    host.write_gpus(GpuState(status=9, output=BROKEN))
    fleet.good("host", "add", name, "--engine-address", "http://127.0.0.1")
    found = wrong(fleet)
    assert set(found) == {f"production unit {PRODUCTION}", "GPUs", "engine address"}
    assert "daemon-reload" in found[f"production unit {PRODUCTION}"]
    assert "couldn't communicate" in found["GPUs"]
    assert "make the tool answer" in found["GPUs"]
    assert "--engine-address" in found["engine address"]

    host.run("systemctl", "daemon-reload")
    host.write_gpus()
    fleet.good("host", "add", name, "--engine-address", f"http://{host.address}")
    assert wrong(fleet) == {}
    assert host.show(PRODUCTION, "MainPID") == before
