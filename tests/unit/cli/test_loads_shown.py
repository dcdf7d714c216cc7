"""Loads of one configuration on the command line: what will be queued, what was, and which is which."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from expctl.main import run
from expctl.views import comparison, experiment, queue
from tests.unit.cli.fake_service import FakeService, item

Capture = pytest.CaptureFixture[str]

NIGHT = """
name: base
host: local
engine: {kind: vllm, model: m}
---
name: ngram
host: local
repeat_load: 3
recheck_baseline: true
baseline: base
engine: {kind: vllm, model: m}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "night.yaml"
    path.write_text(NIGHT)
    return str(path)


def printed(shown: RenderableType) -> str:
    out = io.StringIO()
    Console(file=out, width=120, color_system=None).print(shown)
    return out.getvalue()


def loads() -> list[dict[str, Any]]:
    labels = [("base", "", None), *(("ngram", f"load {n} of 3", None) for n in (1, 2, 3)), ("base", "baseline 1 again", 1)]
    return [
        item(number, name=name, load_text=label, recheck_of=again, eta_text="") for number, (name, label, again) in enumerate(labels, 1)
    ]


def test_a_dry_run_says_how_many_loads_it_would_be(fake: FakeService, file: str, capsys: Capture) -> None:
    fake.answers = {"GET /v1/hosts": [{"name": "local", "config": {}}]}
    assert run(["submit", file, "--dry-run"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if not line.startswith(" ")] == [
        "would queue base on local",
        "would queue ngram on local: 3 loads",
        "that would be 4 loads + 1 baseline recheck",
    ]
    assert run(["submit", file, "--dry-run", "--json"]) == 0
    plans = json.loads(capsys.readouterr().out)
    assert [(plan["loads"], plan["recheck_baseline"]) for plan in plans] == [(1, False), (3, True)]
    assert run(["submit", file, "--dry-run", "--set", "recheck_baseline=false", "--set", "repeat_load=1"]) == 0
    assert "that would be" not in capsys.readouterr().err


def test_what_was_queued_is_told_load_by_load(fake: FakeService, file: str, capsys: Capture) -> None:
    fake.answers = {"POST /v1/experiments": loads()}
    assert run(["submit", file]) == 0
    out, err = capsys.readouterr()
    assert out.split() == ["1", "2", "3", "4", "5"]
    assert "queued 3  ngram (load 2 of 3)  (next on its host)" in err
    assert "queued 5  base (baseline 1 again)" in err
    assert "that is 4 loads + 1 baseline recheck" in err
    fake.answers = {"POST /v1/experiments": loads()[0]}
    assert run(["submit", file]) == 0
    assert "that is" not in capsys.readouterr().err


def test_loads_of_one_name_are_told_apart() -> None:
    table = printed(queue.table(loads()))
    assert [label in table for label in ("ngram (load 1 of 3)", "ngram (load 3 of 3)", "base (baseline 1 again)")] == [True] * 3
    assert "2 ngram (load 1 of 3) · local" in printed(experiment.render(loads()[1]))


@pytest.mark.parametrize(
    ("experiments", "base", "candidate"),
    [
        ({"baseline": [1, 2], "recheck": [6], "candidate": [3, 4]}, "(loads: 1 2; after the candidate 6)", "(loads: 3 4)"),
        ({"baseline": [1], "recheck": [6], "candidate": [3]}, "(loads: 1; after the candidate 6)", ""),
        ({"baseline": [1], "recheck": [], "candidate": [3]}, "", ""),
        ({}, "", ""),
    ],
)
def test_a_comparison_names_the_experiments_behind_each_side(experiments: dict[str, list[int]], base: str, candidate: str) -> None:
    plain = {"baseline": 1, "candidate": 3, "verdict": "worse", "bench_phases": [], "warnings": [], "experiments": experiments}
    first, second = printed(comparison.render(plain, "base", "ngram")).splitlines()[:2]
    assert (first.split(), second.split()) == (f"baseline 1 base {base}".split(), f"candidate 3 ngram {candidate}".split())


def test_ids_of_tokens_are_asked_for_by_name_and_written_as_json(fake: FakeService) -> None:
    fake.answers = {"GET /v1/experiments/1/results": {"experiment": item(1), "phases": [], "first_request": None}}
    assert run(["results", "1", "--ids", "--json"]) == 0
    assert run(["results", "1", "--json"]) == 0
    assert fake.asked == ["GET /v1/experiments/1/results?ids=true", "GET /v1/experiments/1/results?ids=false"]


def test_ids_of_tokens_are_no_table(fake: FakeService, capsys: Capture) -> None:
    assert run(["results", "1", "--ids"]) == 2
    assert "--ids is written as JSON only" in capsys.readouterr().err
    assert fake.asked == []
