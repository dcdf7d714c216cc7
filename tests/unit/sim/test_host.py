"""The simulated GPUs, and the small programs of a simulated host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.sim.simulated import ROOT, SimServer, environment, run
from workers.hosts.gpus import GpuTools
from workers.hosts.local_transport import LocalTransport
from workers.sim.launchers import write_launchers
from workers.sim.state import write_holding

Serve = Callable[..., SimServer]
GPUS = "--query-gpu=index,uuid,name,memory.total,memory.used,memory.free,utilization.gpu,temperature.gpu,power.draw,driver_version"
APPS = "--query-compute-apps=gpu_uuid,pid,process_name,used_gpu_memory"
PLAIN = "--format=csv,noheader,nounits"


def smi(folder: Path, *argv: str) -> list[list[str]]:
    answer = run("workers.sim.nvidia_smi", *argv, folder=folder)
    assert answer.returncode == 0, answer.stdout
    return [line.split(", ") for line in answer.stdout.splitlines()]


def test_idle_gpus(tmp_path: Path) -> None:
    rows = smi(tmp_path, GPUS, PLAIN)
    assert len(rows) == 8
    name = "NVIDIA RTX PRO 6000 Blackwell (simulated)"
    assert [rows[7][at] for at in (0, 2, 3, 4, 5, 9)] == ["7", name, "97887", "4", "97883", "580.95.05"]
    assert len({row[1] for row in rows}) == 8
    assert smi(tmp_path, APPS, PLAIN) == []


def test_header_and_units(tmp_path: Path) -> None:
    assert smi(tmp_path, "--query-gpu=index,memory.used", "--format=csv", "-i", "3") == [["index", "memory.used [MiB]"], ["3", "4 MiB"]]


def test_the_state_that_a_worker_asks_for(tmp_path: Path) -> None:
    """By the worker's own reader, so that the two cannot drift apart."""
    made = write_launchers(tmp_path / "bin", {"EXPCTL_SIM_STATE_DIR": str(tmp_path / "state")})
    facts = GpuTools(LocalTransport(), str(made.nvidia_smi)).facts()
    state = facts["gpu_state"]
    assert isinstance(state, list)
    assert [one["clocks.sm"] for one in state] == ["180"] * 8
    assert "clocks_event_reasons_counters.sw_power_cap" in state[0]
    assert facts["driver"] == "580.95.05"


def test_a_live_engine_shows_and_a_dead_one_does_not(serve: Serve, tmp_path: Path) -> None:
    server = serve("-tp=2", env={"CUDA_VISIBLE_DEVICES": "4,6"}).ready()
    assert [row[4] for row in smi(tmp_path, GPUS, PLAIN)] == ["4", "4", "4", "4", "90004", "4", "90004", "4"]
    apps = smi(tmp_path, APPS, PLAIN)
    assert [(row[1], row[3]) for row in apps] == [(str(server.process.pid), "90000")] * 2
    server.process.kill()
    server.wait()
    assert list((tmp_path / "state").iterdir()), "a killed engine leaves its file behind"
    assert smi(tmp_path, APPS, PLAIN) == []


def test_a_later_process_with_the_same_pid_holds_nothing(tmp_path: Path) -> None:
    write_holding(tmp_path / "state", os.getpid(), [0], 90000, "engine")
    path = tmp_path / "state" / f"engine-{os.getpid()}.json"
    assert len(smi(tmp_path, APPS, PLAIN)) == 1
    path.write_text(json.dumps(json.loads(path.read_text()) | {"started": 1}))
    assert smi(tmp_path, APPS, PLAIN) == []


def test_questions_it_cannot_answer(tmp_path: Path) -> None:
    wrong = run("workers.sim.nvidia_smi", "--query-gpu=index,colour", "--format=csv", folder=tmp_path)
    assert (wrong.returncode, wrong.stdout) == (2, 'Field "colour" is not a valid field to query.\n\n')
    broken = run("workers.sim.nvidia_smi", GPUS, PLAIN, folder=tmp_path, FAULT="smi_fails")
    assert broken.returncode == 9
    assert broken.stdout.startswith("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")


@pytest.mark.parametrize("cwd", [".", "workers-of-another-kind"])
def test_launchers_start_the_simulation_anywhere(tmp_path: Path, cwd: str) -> None:
    """Also where the working directory has a package of the same name, and where nothing is installed."""
    here = tmp_path / cwd
    (here / "workers").mkdir(parents=True)
    (here / "workers" / "__init__.py").write_text("raise RuntimeError")
    state = tmp_path / "it's a place"
    write_holding(state, os.getpid(), [5], 1234, "engine")
    made = write_launchers(tmp_path / "bin", {"EXPCTL_SIM_STATE_DIR": str(state), "OTHER": "secret"})
    assert "secret" not in made.engine.read_text() + made.nvidia_smi.read_text()
    bare = {"PATH": "/usr/bin:/bin"}
    shown = subprocess.run([made.nvidia_smi, APPS, PLAIN], cwd=here, env=bare, capture_output=True, text=True, timeout=20, check=True)
    assert shown.stdout.split(", ")[3] == "1234\n"
    version = subprocess.run([made.engine, "--version"], cwd=here, env=bare, capture_output=True, text=True, timeout=20, check=True)
    assert version.stdout == "0.32.0\n"
    own = bare | {"EXPCTL_SIM_STATE_DIR": str(tmp_path)}
    none = subprocess.run([made.nvidia_smi, APPS, PLAIN], cwd=here, env=own, capture_output=True, text=True, timeout=20, check=True)
    assert none.stdout == "", "the environment comes before what was written"


def test_it_starts_fast(tmp_path: Path) -> None:
    code = "import time, workers.sim.serve; print(time.process_time())"
    command = [sys.executable, "-P", "-c", code]
    shown = subprocess.run(command, env=environment(tmp_path), cwd=ROOT, capture_output=True, text=True, timeout=20, check=True)
    assert float(shown.stdout) < 0.5
