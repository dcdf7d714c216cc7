from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from service.domain.statistics import Part, mean, percentile, satterthwaite_df, squares_about_mean, student_t_quantile, variance


@pytest.mark.parametrize("df", [0.5, 1, 1.3, 2, 2.7, 4, 7.5, 20, 33.3, 1e3, 9.9e4, 1e5, 1e6, 1e12])
@pytest.mark.parametrize("p", [1e-4, 0.025, 0.3, 0.49, 0.501, 0.9, 0.975, 0.99999])
def test_quantile_is_that_of_a_statistics_library(df: float, p: float) -> None:
    assert student_t_quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=1e-8)


@given(st.floats(0.5, 1e7), st.floats(0.001, 0.999))
def test_quantile_anywhere(df: float, p: float) -> None:
    assert student_t_quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=1e-6, abs=1e-9)


def test_infinite_df_is_the_normal_distribution() -> None:
    assert student_t_quantile(0.975, math.inf) == pytest.approx(1.959963984540054, rel=1e-12)
    assert student_t_quantile(0.5, 3) == 0


@pytest.mark.parametrize(("p", "df"), [(0, 3), (1, 3), (0.5, 0), (0.5, -1), (math.nan, 3), (0.9, math.nan)])
def test_quantile_refuses_what_has_none(p: float, df: float) -> None:
    with pytest.raises(ValueError, match="quantile"):
        student_t_quantile(p, df)


def test_unknown_variance_is_not_zero() -> None:
    assert variance([1.0, 2.0, 4.0]) == pytest.approx(7 / 3)
    assert squares_about_mean([5.0]) == 0
    for values in ([], [1.0]):
        with pytest.raises(ValueError, match="not known"):
            variance(values)
    with pytest.raises(ValueError, match="not known"):
        mean([])
    with pytest.raises(ValueError, match="not known"):
        percentile([], 0.5)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2))
def test_percentiles_are_those_of_the_standard_library(values: list[float]) -> None:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    for percent in (50, 90, 99):
        assert math.isclose(percentile(sorted(values), percent / 100), cuts[percent - 1], rel_tol=1e-9, abs_tol=1e-6)


def test_variance_keeps_its_digits_far_from_zero() -> None:
    assert variance([1e9 + 1, 1e9 + 2, 1e9 + 3]) == 1


@given(st.lists(st.floats(-50, 50), min_size=2, max_size=8), st.lists(st.floats(-50, 50), min_size=2, max_size=8))
def test_df_is_that_of_welchs_test(one: list[float], other: list[float]) -> None:
    if variance(one) < 1e-6 or variance(other) < 1e-6:
        return
    parts = [Part(variance(values) / len(values), len(values) - 1) for values in (one, other)]
    assert satterthwaite_df(parts) == pytest.approx(stats.ttest_ind(one, other, equal_var=False).df, rel=1e-9)


def test_df_of_an_assumed_variance_is_infinite() -> None:
    assert satterthwaite_df([Part(1.0, math.inf)]) == math.inf
    assert satterthwaite_df([]) == math.inf
    assert satterthwaite_df([Part(1.0, 4), Part(1.0, math.inf)]) == pytest.approx(16)
    assert satterthwaite_df([Part(1e-200, 4), Part(1e-200, 4)]) == pytest.approx(8)
