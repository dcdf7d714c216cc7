"""How long things will take, judged by how long they took. Seconds in, seconds out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

FEW = 9
"""With fewer samples than this, not even the largest is a p90: the next one exceeds it in more than one case of ten."""
MARGIN = 1.15
"""What p90 is at least, as a multiple of p50, while there are few: loads of one configuration differ by some ten per cent."""
Z90 = 1.2815515655446004
SKEW90 = (Z90**2 - 1) / 6
MOST_SKEW = 2.0
"""Beyond this the correction for skew stops to be one."""


def quantile(ascending: Sequence[float], share: float) -> float:
    """The value that the next sample falls under with probability `share`, as far as the samples reach; at least one is needed.

    Of n samples the k-th smallest has that property for k / (n + 1), whatever their distribution; between two it is interpolated.
    """
    place = share * (len(ascending) + 1) - 1
    below = min(max(math.floor(place), 0), len(ascending) - 1)
    above = min(below + 1, len(ascending) - 1)
    return ascending[below] + (ascending[above] - ascending[below]) * min(max(place - below, 0.0), 1.0)


class Spread(NamedTuple):
    """A time to come, in seconds: its p50 and p90, and the moments by which times are added.

    A tuple, since a long queue makes thousands of them for each look at it.
    """

    p50: float = 0.0
    p90: float = 0.0
    mean: float = 0.0
    variance: float = 0.0
    third: float = 0.0
    """Third central moment."""

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """From how long it took before; at least one sample is needed."""
        ascending = sorted(samples)
        n = len(ascending)
        p50, p90, mean = quantile(ascending, 0.5), quantile(ascending, 0.9), math.fsum(ascending) / n
        if n < FEW:
            p90 = max(p90, p50 * MARGIN)
            return cls(p50, p90, p50, ((p90 - p50) / Z90) ** 2)
        variance = math.fsum((value - mean) ** 2 for value in ascending) / (n - 1)
        third = math.fsum((value - mean) ** 3 for value in ascending) / n
        return cls(p50, p90, mean, variance, third)

    def plus(self, other: Spread) -> Spread:
        """This and then that, the one independent of the other.

        p90s do not add up: both are rarely long together. The moments do, and Cornish and Fisher's expansion gives the
        quantiles of a sum from its first three.
        """
        if not self.mean and self == NOTHING:
            return other
        if not other.mean and other == NOTHING:
            return self
        return Spread.of_moments(self.mean + other.mean, self.variance + other.variance, self.third + other.third)

    @classmethod
    def of_moments(cls, mean: float, variance: float, third: float) -> Spread:
        """From the moments of a sum of several times."""
        deviation = math.sqrt(variance)
        skew = min(max(third / deviation**3, -MOST_SKEW), MOST_SKEW) if deviation else 0.0
        p50 = max(mean - deviation * skew / 6, 0.0)
        p90 = mean + deviation * (Z90 + skew * SKEW90)
        return cls(p50, max(p90, p50), mean, variance, third)


NOTHING = Spread()


def whole(first: Mapping[object, float], second: Mapping[object, float]) -> Spread | None:
    """Two parts that follow one another, each by the run it was seen in. None: one of them was never seen.

    Where enough runs went through both, their own sums tell most: whatever binds the two parts is in them.
    """
    if not first or not second:
        return None
    both = [first[run] + second[run] for run in first.keys() & second.keys()]
    return Spread.of(both) if len(both) >= FEW else Spread.of(list(first.values())).plus(Spread.of(list(second.values())))


@dataclass(frozen=True)
class Remaining:
    """What is left of something that has begun."""

    left: Spread
    longest_s: float | None = None
    """The longest that the present part ever took, where it has outlasted that: then `left` is only what follows it."""


def remaining(runs: Sequence[Mapping[str, float]], part: str, elapsed_s: float, after: Sequence[str]) -> Remaining | None:
    """What is left after `elapsed_s` in a part, and of those after it. None where no run went through the part.

    Only runs whose part took longer than that can tell: a load that has taken 40 minutes is none of those that take 30. What
    follows is taken from the same runs, since a run that was slow in one part is slow in others. A part that a run does not
    have took no time in it.
    """
    known = [run for run in runs if part in run]
    if not known:
        return None
    rest = [(run[part] - elapsed_s, math.fsum(run.get(name, 0.0) for name in after)) for run in known]
    lasting = [left + following for left, following in rest if left > 0]
    if lasting:
        return Remaining(Spread.of(lasting))
    return Remaining(Spread.of([following for _, following in rest]), max(run[part] for run in known))
