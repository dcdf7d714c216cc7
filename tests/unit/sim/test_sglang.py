"""The simulated engine's other dialect, against what reads the real one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from workers.engines.base import LoadPhase, LoadProgress
from workers.engines.page import parse_page
from workers.engines.prometheus import counters_of
from workers.engines.sglang_log import SglangLoadLog
from workers.sim.acceptance import Verified
from workers.sim.knobs import Knobs
from workers.sim.load import LoadFailed
from workers.sim.profile import load_profile
from workers.sim.sglang_flags import parse
from workers.sim.sglang_log import SglangLoader, SglangLog
from workers.sim.sglang_serve import SglangMetrics, main
from workers.sim.state import write_holding

FLAGS = ["--model-path", "/m", "--port", "1", "--enable-metrics"]


def loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str], *flags: str, fault: str = "") -> LoadProgress:
    """What a reader of SGLang's log makes of a load."""
    knobs = Knobs.from_env({"EXPCTL_SIM_LOAD_SECONDS": "0", "EXPCTL_SIM_STATE_DIR": str(tmp_path), "EXPCTL_SIM_FAULT": fault})
    loader = SglangLoader(parse([*FLAGS, *flags]), load_profile("fast"), knobs, SglangLog(), [0])
    try:
        asyncio.run(loader.run())
    except LoadFailed:
        loader.log.plain("")
    out, err = capsys.readouterr()
    said = SglangLoadLog()
    said.feed(out.split("\n"))
    bars = SglangLoadLog().feed(err.split("\n"))
    assert bars.total is None or bars.percent == 100 or fault
    return said.progress


def test_a_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = loaded(tmp_path, capsys)
    assert found.phase == LoadPhase.WARMUP
    assert (found.reason, found.engine_version) == (None, "0.5.6")
    assert (found.facts["kv_cache_tokens"], found.facts["max_model_len"], found.facts["weights_gib"]) == (262_144, 131_072, 0.5)


@pytest.mark.parametrize(("fault", "reason"), [("oom_at_load", "cuda_out_of_memory"), ("kv_cache_too_small", "kv_cache_too_small")])
def test_a_load_that_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: str, reason: str) -> None:
    assert loaded(tmp_path, capsys, fault=fault).reason == reason


def test_a_card_that_is_not_free(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_holding(tmp_path, 1, [0], 90_000, "somebody")
    assert loaded(tmp_path, capsys).reason == "gpu_memory_not_free_at_start"


def test_a_flag_that_it_does_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["serve", *FLAGS, "--tensor-paralel", "2"])
    assert caught.value.code == 2
    found = SglangLoadLog().feed(capsys.readouterr().err.split("\n"))
    assert (found.reason, found.facts["argument"]) == ("bad_arguments", "--tensor-paralel")


def test_its_page_of_counters() -> None:
    metrics = SglangMetrics("m", 5, 1000)
    silent = counters_of(parse_page(metrics.page()))
    assert silent is not None
    assert silent.gauges == {"0": {"accept_length": 0.0, "accept_rate": 0.0}}
    metrics.counters.count_step(Verified(drafted=5, accepted=3))
    metrics.counters.generation_tokens = 4
    found = counters_of(parse_page(metrics.page()))
    assert found is not None
    assert (found.engine, found.generation_tokens) == ("sglang", 4.0)
    assert found.gauges == {"0": {"accept_length": 4.0, "accept_rate": 0.6}}
    plain = counters_of(parse_page(SglangMetrics("m", 0, 1000).page()))
    assert plain is not None
    assert plain.gauges == {"0": {"accept_length": 0.0, "accept_rate": 0.0}}, "the series are there all the same"
