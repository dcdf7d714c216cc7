"""A bad flag costs seconds, whether the look before the start finds it or the engine itself refuses it; the next one starts."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.service import Service

HELP = Path(__file__).parents[1] / "data" / "vllm-0.32" / "help.txt"
MOST_S = 15.0


def program(service: Service) -> Path:
    """A `vllm` that has the real one's help and the simulated one's everything else."""
    simulated, made = service.engine(), service.folder / "vllm-with-help"
    made.write_text(f'#!/bin/sh\n[ "$2" = --help=all ] && exec cat {HELP}\nexec {simulated} "$@"  # workers.sim\n')
    made.chmod(0o755)
    return made


def seconds(item: dict[str, Any]) -> float:
    began, ended = (datetime.fromisoformat(item[key]) for key in ("started_at", "finished_at"))
    return (ended - began).total_seconds()


@pytest.mark.costly
@pytest.mark.parametrize("seen_by", ["the look", "the engine"])
def test_a_bad_flag_costs_seconds_and_the_next_one_starts(service: Service, seen_by: str) -> None:
    own = {"executable": str(program(service))} if seen_by == "the look" else {}
    name = seen_by.replace(" ", "-")
    bad = service.submit(service.file(f"bad-{name}", engine={**own, "args": {"max-model-length": 4096}}))
    after = service.submit(service.file(f"after-{name}", engine=own, bench={"concurrency": [1], "max_tokens": 4}))
    refused, next_one = service.ended(bad), service.ended(after)
    assert (refused["outcome"], refused["reason"]) == ("failed", "bad_arguments")
    assert "--max-model-length" in refused["evidence"]
    assert refused["step"] == ("clear" if seen_by == "the look" else "load")
    assert seconds(refused) < MOST_S
    assert next_one["outcome"] == "succeeded", next_one
    waited = datetime.fromisoformat(next_one["started_at"]) - datetime.fromisoformat(refused["finished_at"])
    assert waited.total_seconds() < MOST_S
    looks = {one["about"]: one for step in next_one["steps"] for one in step["evidence"].get("preflight", ())}
    assert looks["arguments"]["verdict"] == ("good" if seen_by == "the look" else "unchecked")
    assert ("simulation" in looks["arguments"]["text"]) == (seen_by == "the engine")
