"""The example files, as they are, with the simulated engine in the place of a real one. The demo runs kimi-baseline and kimi-ngram."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.service import Service
from workers.sim.launchers import write_launchers

EXAMPLES = Path(__file__).parents[2] / "examples"
SHORT = ["bench.max_tokens=8", "bench.concurrency=[1]", "bench.repeat=1", "bench.warmup=1"]


def run(service: Service, example: str, *changes: str) -> list[dict[str, Any]]:
    """Queue an example and wait for all of it."""
    options = [word for change in changes for word in ("--set", change)]
    done = service.cli("submit", str(EXAMPLES / example), *options)
    assert done.returncode == 0, done.stderr
    return [service.ended(int(line)) for line in done.stdout.split()]


def test_the_training_run(service: Service) -> None:
    [found] = run(service, "train.yaml")
    assert found["outcome"] == "succeeded", found["detail"]
    assert (service.data / "artifacts" / str(found["id"]) / "out" / "model.json").is_file()


@pytest.mark.costly
def test_a_sweep_several_loads_and_another_engine(service: Service) -> None:
    launchers = write_launchers(service.folder / "examples", {"EXPCTL_SIM_LOAD_SECONDS": "0.3"})
    here = ["host=local", *SHORT]
    vllm = [*here, f"engine.executable={launchers.engine}"]
    found = [
        *run(service, "kimi-baseline.yaml", *vllm),
        *run(service, "kimi-eagle3.yaml", *vllm),
        *run(service, "sure.yaml", *vllm),
        *run(service, "sglang.yaml", *here, f"engine.executable={launchers.sglang}"),
    ]
    assert [(one["name"], one["outcome"], one["detail"]) for one in found if one["outcome"] != "succeeded"] == []
    assert len(found) == 1 + 3 + 5 + 2
    [compared] = service.client.compare(found[0]["id"], [found[1]["id"]])
    assert compared["comparable"], compared["why_not"]
