"""The demo, as a newcomer runs it. It takes about a minute, because token times are real."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


def test_it_tells_the_story() -> None:
    demo = subprocess.run([sys.executable, "-m", "expctl", "demo", "--json"], capture_output=True, text=True, check=False, timeout=170)
    assert demo.returncode == 0, demo.stderr
    assert demo.stderr.startswith("SIMULATED")
    assert "Loading · weights" in demo.stderr
    answer = json.loads(demo.stdout)
    assert set(answer) == {"baseline", "candidate", "comparison"}
    comparison = answer["comparison"]
    assert (comparison["baseline"], comparison["candidate"]) == (answer["baseline"], answer["candidate"])
    assert comparison["verdict"] == "worse"
    phase = comparison["bench_phases"][0]
    assert [row["prompt"] for row in phase["prompts"]] == ["code", "maths", "structured", "explanation", "reasoning"]
    first, second = phase["prompts"][:2]
    assert first["tps_change"] == pytest.approx(-0.26, abs=0.03)
    assert second["tps_change"] == pytest.approx(-0.17, abs=0.03)
    assert phase["speculation"]["candidate"]["mean_acceptance_length"] == pytest.approx(2.33, abs=0.1)
    assert phase["speculation"]["baseline"]["status"] == "off"
    assert phase["effect"]["ci95"][1] < 1
    assert first["break_even_tokens_per_step"] == pytest.approx(3.15, abs=0.15)
