"""The little statistics that a verdict needs: mean, percentile, variance, Student's t, Welch-Satterthwaite degrees of freedom.

No numerical library at run time; the tests compare with one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

_LARGE_DF = 1e5
_TINY = 1e-300
_ROUNDS = 300


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; ValueError for no values."""
    if not values:
        raise ValueError("the mean of no values is not known")
    return math.fsum(values) / len(values)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which a share of sorted values lies, by linear interpolation between the closest ranks; ValueError for none."""
    if not ordered:
        raise ValueError("a percentile of no values is not known")
    rank = (len(ordered) - 1) * share
    low, high = math.floor(rank), math.ceil(rank)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def squares_about_mean(values: Sequence[float]) -> float:
    """Sum of squared deviations from the mean, in two passes."""
    middle = mean(values)
    return math.fsum((value - middle) ** 2 for value in values)


def variance(values: Sequence[float]) -> float:
    """Sample variance (n - 1); ValueError for fewer than two values, whose variance is not known rather than 0."""
    if len(values) < 2:  # noqa: PLR2004
        raise ValueError("the variance of fewer than two values is not known")
    return squares_about_mean(values) / (len(values) - 1)


@dataclass(frozen=True)
class Part:
    """An independent part of an estimate's variance, and the degrees of freedom it was estimated with."""

    variance: float
    df: float
    """`inf` for a variance that is assumed, not estimated."""


def satterthwaite_df(parts: Iterable[Part]) -> float:
    """Degrees of freedom of a sum of variances: (sum v)^2 / sum(v^2 / df).

    Satterthwaite 1946, "An approximate distribution of estimates of variance components"; Welch 1947.
    """
    listed = list(parts)
    total = math.fsum(part.variance for part in listed)
    if total <= 0:
        return math.inf
    # Shares, not squares of tiny variances: those would underflow.
    bottom = math.fsum((part.variance / total) ** 2 / part.df for part in listed)
    return 1 / bottom if bottom > 0 else math.inf


def student_t_quantile(p: float, df: float) -> float:
    """The t below which a share `p` of Student's distribution lies; `df` may be fractional or infinite.

    Solves P(T > t) = 1/2 I_x(df/2, 1/2), x = df / (df + t^2) (Abramowitz & Stegun 26.7.1), by Newton's method kept
    between bounds. From 100,000 degrees of freedom on by the expansion about the normal quantile (A&S 26.7.5).
    """
    if not 0 < p < 1 or not df > 0:
        raise ValueError("a quantile of t needs 0 < p < 1 and df > 0")
    if p == 0.5:  # noqa: PLR2004
        return 0.0
    tail = min(p, 1 - p)
    t = _expansion(tail, df) if df >= _LARGE_DF else _solve(tail, df)
    return -t if p < 0.5 else t  # noqa: PLR2004


def _expansion(tail: float, df: float) -> float:
    z = -NormalDist().inv_cdf(tail)
    if math.isinf(df):
        return z
    return float(z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2))


def _solve(tail: float, df: float) -> float:
    low, high = 0.0, 1.0
    while _upper_tail(high, df) > tail:
        low, high = high, high * 2
    t = (low + high) / 2
    for _ in range(_ROUNDS):
        excess = _upper_tail(t, df) - tail
        low, high = (t, high) if excess > 0 else (low, t)
        density = math.exp(_log_density(t, df))
        step = t + excess / density if density > 0 else math.inf
        following = step if low < step < high else (low + high) / 2
        if abs(following - t) <= 1e-13 * t:
            return following
        t = following
    return t


def _log_density(t: float, df: float) -> float:
    return math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - math.log(df * math.pi) / 2 - (df + 1) / 2 * math.log1p(t * t / df)


def _upper_tail(t: float, df: float) -> float:
    """P(T > t) for t >= 0."""
    return _incomplete_beta(df / 2, 0.5, df / (df + t * t), t * t / (df + t * t)) / 2


def _incomplete_beta(a: float, b: float, x: float, rest: float) -> float:
    """Regularised I_x(a, b); `rest` is 1 - x, passed on its own because the subtraction would lose its digits."""
    if x <= 0 or rest <= 0:
        return 0.0 if x <= 0 else 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest))
    if x < (a + 1) / (a + b + 2):
        return front * _continued_fraction(a, b, x) / a
    return 1 - front * _continued_fraction(b, a, rest) / b


def _continued_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method (Numerical Recipes 6.4)."""
    c, d = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1))
    result = d
    for m in range(1, _ROUNDS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _not_zero(1 + term * d)
            c = _not_zero(1 + term / c)
            result *= d * c
        if abs(d * c - 1) < 1e-15:  # noqa: PLR2004
            break
    return result


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
