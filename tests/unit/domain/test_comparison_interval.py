from __future__ import annotations

import importlib.util
import math
import statistics
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from service.domain.comparison import Arm, BetweenLoad, Comparison, compare, samples
from service.domain.effect import ASSUMED, between_from_history, estimate, half_width
from tests.unit.domain.arms import BASE, SLOWER, arm, speeds, verdict


def test_interval_is_the_one_computed_by_hand() -> None:
    """Two prompts, three repeats, one load: every number of the formula written out."""
    found = verdict(BASE, SLOWER)
    ratio = math.sqrt(46.4 / 62.6 * 64.8 / 78.0)
    parts = [0.6**2 / (3 * 62.6**2) / 4, 0.5**2 / (3 * 78.0**2) / 4, 0.4**2 / (3 * 46.4**2) / 4, 0.5**2 / (3 * 64.8**2) / 4]
    total = sum(parts) + 2 * 0.015**2
    half = stats.t.ppf(0.975, total**2 / sum(part**2 / 2 for part in parts)) * math.sqrt(total)
    effect = found.bench_phases[0].effect
    assert effect is not None
    assert effect.ci95 is not None
    assert effect.tps_ratio == pytest.approx(ratio)
    assert effect.ci95 == pytest.approx([ratio * math.exp(-half), ratio * math.exp(half)], rel=1e-9)
    assert effect.smallest_detectable == pytest.approx(math.exp(half) - 1)
    assert effect.between_load_sd == BetweenLoad(value=0.015, from_="assumed", n=0)
    assert (found.verdict, found.comparable, found.why_not, found.warnings) == ("worse", True, [], [])


def test_history_with_four_degrees_of_freedom_replaces_the_assumption() -> None:
    known = verdict(BASE, SLOWER, between=BetweenLoad(value=0.004, from_="history", n=4)).bench_phases[0].effect
    assert known is not None
    assert known.ci95 is not None
    assert known.between_load_sd == BetweenLoad(value=0.004, from_="history", n=4)
    parts = [0.6**2 / (3 * 62.6**2) / 4, 0.5**2 / (3 * 78.0**2) / 4, 0.4**2 / (3 * 46.4**2) / 4, 0.5**2 / (3 * 64.8**2) / 4]
    between = 2 * 0.004**2
    total = sum(parts) + between
    df = total**2 / (sum(part**2 / 2 for part in parts) + between**2 / 4)
    assert math.log(known.ci95[1] / known.tps_ratio) == pytest.approx(stats.t.ppf(0.975, df) * math.sqrt(total), rel=1e-9)
    for weak in (BetweenLoad(value=0.004, from_="history", n=3), BetweenLoad(value=0.0, from_="history", n=9)):
        effect = verdict(BASE, SLOWER, between=weak).bench_phases[0].effect
        assert effect is not None
        assert effect.between_load_sd.from_ == "assumed"


def test_between_load_sd_from_repeated_loads() -> None:
    loads = [samples([speeds({"a": [speed, speed], "b": [2 * speed, 2 * speed]})]) for speed in (100.0, 102.0, 99.0)]
    found = between_from_history([loads, loads[:2], loads[:1], []])
    assert found is not None
    logs = [math.log(speed) for speed in (100.0, 102.0, 99.0)]
    squares = 2 * statistics.variance(logs) + statistics.variance(logs[:2])
    assert (found.value, found.n) == (pytest.approx(math.sqrt(squares / 3)), 3)
    assert between_from_history([loads[:1]]) is None


def test_more_loads_narrow_the_interval_more_repeats_hardly() -> None:
    def width(loads: int, repeats: int) -> float:
        one = [speeds({"a": [99.0, 101.0] * repeats, "b": [99.0, 101.0] * repeats})]
        effect = compare(arm(*[one] * loads), arm(*[one] * loads)).bench_phases[0].effect
        assert effect is not None
        assert effect.smallest_detectable is not None
        return effect.smallest_detectable

    assert width(1, 8) > 0.9 * width(1, 2)
    assert width(4, 2) == pytest.approx(width(1, 2) / 2, rel=0.06)


def test_noise_within_a_load_is_not_mixed_with_the_shift_between_loads() -> None:
    def sides(shift: float) -> Arm:
        return arm([speeds({"a": [99.0, 101.0, 100.0]})], [speeds({"a": [99.0 * shift, 101.0 * shift, 100.0 * shift]})])

    shifted, still = (estimate(samples(p for load in sides(s).loads for p in load), {"a": [[100.0, 101.0]]}) for s in (1.2, 1.0))
    assert shifted is not None
    assert still is not None
    theirs = 0.5 / (2 * 100.5**2)
    assert sum(part.variance for part in still.within) == pytest.approx(1 / (6 * 100**2) + theirs)
    assert sum(part.variance for part in shifted.within) == pytest.approx((1 + 1.2**2) / 2 / (6 * 110**2) + theirs)


def test_loads_of_one_repeat_each_take_the_spread_over_loads() -> None:
    found = estimate({"a": [[99.0], [101.0]]}, {"a": [[50.0], [50.0], []]})
    assert found is not None
    assert found.warnings == []
    assert [part.variance for part in found.within] == pytest.approx([2 / (2 * 100**2), 0])
    assert found.between == ASSUMED
    assert half_width([], ASSUMED, 2, 2) == pytest.approx(1.95996398 * 0.015)


def test_nothing_in_common_is_no_estimate() -> None:
    assert estimate({"a": [[1.0]]}, {"b": [[1.0]]}) is None
    assert estimate({"a": [[]]}, {"a": [[1.0]]}) is None


def test_one_repeat_takes_the_spread_over_prompts_and_says_so() -> None:
    base, candidate = {"a": [100.0], "b": [80.0], "c": [60.0]}, {"a": [90.0], "b": [74.0], "c": [52.0]}
    found = verdict(base, candidate)
    effect = found.bench_phases[0].effect
    logs = [math.log(0.9), math.log(74 / 80), math.log(52 / 60)]
    spread, between = statistics.variance(logs) / 3, 2 * 0.015**2
    half = stats.t.ppf(0.975, (spread + between) ** 2 / (spread**2 / 2)) * math.sqrt(spread + between)
    assert effect is not None
    assert effect.smallest_detectable == pytest.approx(math.expm1(half), rel=1e-9)
    assert "one repeat only" in found.warnings[0]


def test_one_prompt_once_shows_nothing() -> None:
    found = verdict({"a": [100.0]}, {"a": [10.0]})
    effect = found.bench_phases[0].effect
    assert effect is not None
    assert (found.verdict, effect.ci95, effect.smallest_detectable) == ("no_difference_shown", None, None)
    assert effect.tps_ratio == pytest.approx(0.1)
    assert "raise bench.repeat" in found.warnings[0]
    assert found.advice == []


def test_no_difference_says_what_it_could_have_shown_and_what_would_help() -> None:
    found = verdict(BASE, {prompt: [1.01 * value for value in values] for prompt, values in BASE.items()})
    effect = found.bench_phases[0].effect
    assert effect is not None
    assert found.verdict == "no_difference_shown"
    assert effect.smallest_detectable == pytest.approx(0.043, abs=0.002)
    assert "4.4 % or more; differences between loads make up" in found.advice[0]
    assert "assumed" in found.advice[1]
    assert found.advice[2].startswith("repeat_load: 3 on both sides would show 2.5 % or more")
    assert found.advice[3].startswith("recheck_baseline: true")
    assert not any("bench.repeat" in line for line in found.advice), "the noise within a load is small: no offer"
    noisy = {"a": [80.0, 120.0, 100.0], "b": [80.0, 120.0, 100.0]}
    assert any(line.startswith("bench.repeat: 12 would show") for line in verdict(noisy, noisy).advice)


@pytest.mark.parametrize("offer", ["repeat_load: 3", "bench.repeat: 12"])
def test_what_advice_promises_is_what_comes_of_it(offer: str) -> None:
    """The offered measurement, made with the same noise, shows the width that was promised."""
    values = {"a": [98.0, 102.0, 100.0], "b": [49.0, 51.0, 50.0]}
    now = compare(arm([speeds(values)]), arm([speeds(values)]))
    line = next(line for line in now.advice if line.startswith(offer))
    promised = float(line.partition("would show ")[2].partition(" %")[0])
    loads, times = (3, 1) if "load" in offer else (1, 4)
    # As often the same values: their spread stays, up to what the n - 1 of a variance makes of it.
    more = [[speeds({prompt: listed * times for prompt, listed in values.items()})]] * loads
    effect = compare(arm(*more), arm(*more)).bench_phases[0].effect
    assert effect is not None
    assert effect.smallest_detectable is not None
    assert 100 * effect.smallest_detectable == pytest.approx(promised, rel=0.08)


def drifting(before: float, after: float, candidate: float) -> Comparison:
    again = [[speeds({prompt: [after * value for value in values] for prompt, values in BASE.items()})]]
    base = arm([speeds({prompt: [before * value for value in values] for prompt, values in BASE.items()})], recheck=again)
    return compare(base, arm([speeds({prompt: [candidate * value for value in values] for prompt, values in BASE.items()})], experiment=2))


def test_a_baseline_measured_again_counts_as_a_load_and_shows_that_nothing_drifted() -> None:
    found = drifting(1.0, 1.005, 0.9)
    phase = found.bench_phases[0]
    assert phase.loads == [2, 1]
    assert phase.drift is not None
    assert phase.drift.tps_ratio == pytest.approx(1.005)
    assert (phase.drift.shown, found.verdict) == (False, "worse")
    assert not any("drift" in warning for warning in found.warnings)
    assert not any("recheck_baseline" in line for line in drifting(1.0, 1.0, 1.0).advice)


def test_a_drift_that_is_shown_widens_the_interval_and_may_take_the_verdict() -> None:
    still, moved = drifting(1.0, 1.0, 0.95), drifting(1.05, 0.95, 0.95)
    assert still.verdict == "worse"
    assert moved.bench_phases[0].drift is not None
    assert moved.bench_phases[0].drift.shown
    assert moved.verdict == "no_difference_shown"
    assert "the host drifted: the baseline was 9.5 % slower when measured again" in " ".join(moved.warnings)
    assert drifting(1.05, 0.95, 0.7).verdict == "worse"


def test_an_arm_without_a_second_look_has_no_drift() -> None:
    assert verdict(BASE, SLOWER).bench_phases[0].drift is None


POSITIVE = st.floats(5, 500)
REPEATS = st.lists(POSITIVE, min_size=2, max_size=4)
ARMS = st.fixed_dictionaries({"a": REPEATS, "b": REPEATS, "c": REPEATS})


@given(ARMS, ARMS, st.floats(0.01, 100))
def test_units_do_not_matter(base: dict[str, list[float]], candidate: dict[str, list[float]], unit: float) -> None:
    scaled = [{prompt: [value * unit for value in values] for prompt, values in side.items()} for side in (base, candidate)]
    one, other = verdict(base, candidate).bench_phases[0].effect, verdict(*scaled).bench_phases[0].effect
    assert one is not None
    assert other is not None
    assert one.tps_ratio == pytest.approx(other.tps_ratio)
    assert one.ci95 == pytest.approx(other.ci95)


@given(ARMS, ARMS)
def test_swapping_the_arms_inverts_the_ratio(base: dict[str, list[float]], candidate: dict[str, list[float]]) -> None:
    one, other = verdict(base, candidate), verdict(candidate, base)
    ahead, back = one.bench_phases[0].effect, other.bench_phases[0].effect
    assert ahead is not None
    assert back is not None
    assert ahead.ci95 is not None
    assert ahead.tps_ratio == pytest.approx(1 / back.tps_ratio)
    assert ahead.ci95 == pytest.approx([1 / bound for bound in reversed(back.ci95 or [])])
    assert other.verdict == {"better": "worse", "worse": "better"}.get(one.verdict, one.verdict)


def test_identical_arms_show_no_difference() -> None:
    assert verdict(BASE, BASE).verdict == "no_difference_shown"
    still = {"a": [100.0, 100.0]}
    effect = verdict(still, still).bench_phases[0].effect
    assert effect is not None
    assert effect.smallest_detectable == pytest.approx(math.expm1(1.95996398 * 0.015 * math.sqrt(2)))


def study() -> ModuleType:
    path = Path(__file__).resolve().parents[3] / "benchmarks" / "verdict_study.py"
    spec = importlib.util.spec_from_file_location("verdict_study", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_verdict_does_not_cry_wolf_and_a_bootstrap_does() -> None:
    ours, theirs = study().false_alarms(300, seed=1, bootstrap_runs=40)
    assert ours <= 0.05
    assert theirs >= 0.5
    assumed, _ = study().false_alarms(400, seed=2, world=study().World(load_sd=0.015), bootstrap_runs=0)
    assert 0.01 <= assumed <= 0.08, "where the assumption is exactly right, the rate is the nominal 5 %"


def test_a_large_effect_is_seen() -> None:
    assert study().detected(40, 3, 0.08, study().World()) >= 0.9
