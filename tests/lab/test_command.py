"""A command on a host of the lab: a unit of systemd over SSH, with progress, artifacts, a time limit, and how it ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.fleet import Fleet, begin
from tests.lab.host import LabHost, wait_for

pytestmark = pytest.mark.lab

TRAIN = """\
id -un > who; pwd > where; echo "$CUDA_VISIBLE_DEVICES" > cards; echo "$GREETING" > said
for i in 1 2 3 4; do echo "step $i/4"; sleep 0.5; done
mkdir -p out; head -c 6000000 /dev/zero > out/weights; chmod 600 out/weights; ln -s /etc/passwd out/leads-out
"""


@pytest.fixture(params=["expctl"])
def fleet(production_host: LabHost, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """The user to log in as; a test may ask for others besides."""
    made = begin(tmp_path, production_host, request.param)
    yield made
    made.end()


def submit(fleet: Fleet, name: str, **engine: Any) -> int:
    path = fleet.service.folder / f"{name}.yaml"
    path.write_text(json.dumps({"name": name, "host": fleet.host.name, "engine": {"kind": "command", **engine}}))
    return int(fleet.good("submit", str(path)))


@pytest.mark.parametrize("fleet", ["expctl", "root"], indirect=True)
def test_a_command_runs_as_a_unit_and_its_files_come_home(fleet: Fleet) -> None:
    artifacts = ["who", "where", "cards", "said", "out", "missing-*"]
    progress = r"step (?P<done>\d+)/(?P<total>\d+)"
    one = submit(fleet, "train", run=TRAIN, progress=progress, artifacts=artifacts, gpus=[0, 1], env={"GREETING": "hello"})
    fails = submit(fleet, "fails", run=["sh", "-c", "echo it is broken >&2; exit 7"])
    slow = submit(fleet, "slow", run="echo begun; sleep 600", timeout=3)
    wrong = submit(fleet, "wrong", run=["/srv/no-such-program"])

    done = fleet.ended(one)
    assert done["outcome"] == "succeeded", done
    assert done["facts"]["command"]["exit_status"] == 0
    assert done["progress"]["percent"] == 100
    folder = Path(done["facts"]["artifacts_folder"])
    assert (folder / "who").read_text() == "vllm\n"
    assert (folder / "where").read_text() == f"/var/lib/expctl-work/expctl-{one}-train\n"
    assert (folder / "cards").read_text() == "0,1\n"
    assert (folder / "said").read_text() == "hello\n"
    warnings = "\n".join(done["facts"]["artifact_warnings"])
    assert "missing-* matches no file" in warnings
    assert "leads-out is left out" in warnings
    if fleet.user == "root":
        assert (folder / "out" / "weights").stat().st_size == 6_000_000, "root reads in the name of whoever ran it"
    else:
        assert "weights is left out: Permission denied" in warnings, "the login may not read what its user has kept to itself"

    broken = fleet.ended(fails)
    assert (broken["reason"], "it is broken" in broken["evidence"]) == ("command_failed", True)
    assert "exit status 7" in broken["detail"]
    assert fleet.ended(slow)["reason"] == "command_timeout"
    never = fleet.ended(wrong)
    assert (never["reason"], never["step"]) == ("exec_failed", "clear"), "found before the start"
    fleet.production_back()
    folder_left = fleet.host.run("ls", "/var/lib/expctl-work").stdout
    assert f"expctl-{one}-train" in folder_left, "not all of its files could be fetched"
    assert not [unit for unit in fleet.host.run("ls", "/run/systemd/system").stdout.split() if unit.startswith("expctl-")]


def test_one_is_adopted_by_the_next_worker_and_not_started_twice(fleet: Fleet) -> None:
    one = submit(fleet, "long", run="echo begun >> runs; sleep 6; echo over >> runs", artifacts=["runs"])
    fleet.at_step(one, "measure")
    fleet.kill_worker()
    wait_for(lambda: fleet.host.show(f"expctl-{one}-long.service", "SubState") == "exited", 60, "it has ended without us")
    fleet.start_worker()
    done = fleet.ended(one)
    assert done["outcome"] == "succeeded", done
    assert (Path(done["facts"]["artifacts_folder"]) / "runs").read_text() == "begun\nover\n"
    fleet.production_back()
    folder = f"/var/lib/expctl-work/expctl-{one}-long"
    wait_for(lambda: fleet.host.run("test", "!", "-e", folder, check=False).returncode == 0, 60, "its folder goes when the shift ends")
