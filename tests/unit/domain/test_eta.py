from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from service.domain.eta import FEW, MARGIN, NOTHING, Spread, quantile, remaining, whole

REMEMBERED = 30
LOADS = 200
PHASES = ("weights", "compile", "graphs")
Run = dict[str, float]


def loads(seed: int, number: int = LOADS) -> list[Run]:
    """Loads of about 40 minutes: slow disks are slow for all of a load, and now and then the compile cache is cold."""
    rng = random.Random(seed)  # noqa: S311 - a made-up history
    made = []
    for _ in range(number):
        slow = rng.lognormvariate(0, 0.12)
        compiling = (300 if rng.random() < 0.2 else 60) * rng.lognormvariate(0, 0.2)
        made.append({"weights": 1500 * slow * rng.lognormvariate(0, 0.05), "compile": compiling, "graphs": 400 * slow})
    return made


def history(runs: list[Run]) -> Iterator[tuple[list[Run], Run]]:
    """Each load, with those before it that are remembered."""
    for place in range(REMEMBERED, len(runs)):
        yield runs[place - REMEMBERED : place], runs[place]


def covered(pairs: list[tuple[Spread, float]]) -> tuple[float, float]:
    """How often the truth came at or before the p50, and the p90."""
    return sum(truth <= eta.p50 for eta, truth in pairs) / len(pairs), sum(truth <= eta.p90 for eta, truth in pairs) / len(pairs)


def total(run: Run) -> float:
    return sum(run.values())


def of_a_load(before: list[Run], run: Run) -> tuple[Spread, float]:
    return Spread.of([total(one) for one in before]), total(run)


def of_a_load_and_a_bench(before: list[Run], run: Run) -> tuple[Spread, float]:
    """The bench was seen in other runs than the load."""
    rng = random.Random(str(run))  # noqa: S311 - as above
    benches = [rng.gammavariate(9, 60) for _ in before]
    first = {place: total(one) for place, one in enumerate(before)}
    second = {-1 - place: seconds for place, seconds in enumerate(benches)}
    eta = whole(first, second)
    assert eta is not None
    return eta, total(run) + rng.gammavariate(9, 60)


def of_what_is_left(before: list[Run], run: Run) -> tuple[Spread, float]:
    """Asked half-way through the weights of an ordinary load."""
    left = remaining(before, "weights", 750.0, ("compile", "graphs"))
    assert left is not None
    return left.left, total(run) - 750.0


def of_four_in_a_row(before: list[Run], run: Run) -> tuple[Spread, float]:
    rng = random.Random(str(run))  # noqa: S311 - as above
    eta = NOTHING
    for _ in range(4):
        eta = eta.plus(Spread.of([total(one) for one in before]))
    return eta, sum(total(one) for one in loads(rng.randrange(10**9), 4))


@pytest.mark.parametrize("ask", [of_a_load, of_a_load_and_a_bench, of_what_is_left, of_four_in_a_row])
def test_what_is_said_holds(ask: Callable[[list[Run], Run], tuple[Spread, float]]) -> None:
    half, nine = covered([ask(before, run) for seed in range(3) for before, run in history(loads(seed, LOADS + REMEMBERED))])
    assert 0.4 <= half <= 0.6
    assert 0.85 <= nine <= 0.95


def test_p90s_are_not_added_up() -> None:
    one = Spread.of([total(run) for run in loads(1, 30)])
    both = one.plus(one)
    assert both.p50 == pytest.approx(2 * one.p50, rel=0.03)
    assert both.p90 < 2 * one.p90 - 100


def test_runs_that_went_through_both_tell_most() -> None:
    """Here the two halves are bound to each other: what is long in one is short in the other."""
    first = {run: 100.0 + run for run in range(20)}
    second = {run: 100.0 - run for run in range(20)}
    assert whole(first, second) == Spread.of([200.0] * 20)
    apart = whole(first, {run + 100: seconds for run, seconds in second.items()})
    assert apart is not None
    assert apart.p90 > 205
    assert whole(first, {}) is None


@pytest.mark.parametrize("number", [1, 2, 8])
def test_few_loads_promise_little(number: int) -> None:
    few = Spread.of([600.0 + 10 * place for place in range(number)])
    assert few.p90 == max(600.0 + 10 * (number - 1), few.p50 * MARGIN)
    assert few.p90 > few.p50
    assert few.plus(few).p90 < 2 * few.p90


def test_from_nine_on_the_samples_speak() -> None:
    assert Spread.of([600.0] * FEW).p90 == 600.0


@pytest.mark.parametrize(("share", "value"), [(0.5, 30.0), (0.9, 50.0), (1 / 6, 10.0), (0.01, 10.0), (0.25, 15.0)])
def test_quantiles(share: float, value: float) -> None:
    assert quantile([10.0, 20.0, 30.0, 40.0, 50.0], share) == pytest.approx(value)


def test_what_has_lasted_is_compared_with_what_lasted() -> None:
    runs: list[Run] = [{"weights": 600.0, "graphs": 60.0}] * 10 + [{"weights": 1200.0, "graphs": 120.0}] * 10
    early, late = remaining(runs, "weights", 300.0, ["graphs"]), remaining(runs, "weights", 700.0, ["graphs"])
    assert early is not None
    assert early.left.p50 == pytest.approx((360 + 1020) / 2)
    assert late is not None
    assert (late.left.p50, late.left.p90, late.longest_s) == (620.0, 620.0, None)


def test_longer_than_ever_before() -> None:
    found = remaining([{"weights": 600.0, "graphs": 60.0}] * 10, "weights", 601.0, ["graphs"])
    assert found is not None
    assert (found.left.p50, found.longest_s) == (60.0, 600.0)


def test_a_part_that_was_never_seen_tells_nothing() -> None:
    assert remaining([{"weights": 600.0}], "graphs", 0.0, []) is None
    assert remaining([], "weights", 0.0, []) is None
