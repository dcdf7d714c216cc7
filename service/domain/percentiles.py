"""Percentiles on both sides of a comparison, each with the number of values that it stands on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Literal

from service.domain.measurement import PhaseResult
from service.domain.records import Record
from service.domain.statistics import percentile

Figure = Literal["ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"]

LEAST = {"p50": 1, "p90": 10, "p99": 100}
"""Values from which one lies beyond the percentile on average: with fewer it is little more than the largest of them."""


class Percentiles(Record):
    """Every pair is [baseline, candidate]; null where no value is known. Linear interpolation between the closest ranks."""

    n: list[int]
    """How many values: requests; for ITL gaps."""
    p50: list[float | None]
    p90: list[float | None]
    p99: list[float | None]
    few: list[str]
    """Those that a side has too few values for, so that a change of them says little."""


def percentiles(old: Iterable[PhaseResult], new: Iterable[PhaseResult]) -> dict[Figure, Percentiles]:
    """Of the ok requests of some phases, pooled; figures that neither side knows are left out."""
    sides = [_values(phases) for phases in (old, new)]
    found = {name: _both(sides[0][name], sides[1][name]) for name in sides[0]}
    return {name: one for name, one in found.items() if any(one.n)}


def _values(phases: Iterable[PhaseResult]) -> Mapping[Figure, list[float]]:
    ok = [request for phase in phases for request in phase.requests if request.ok]
    return {
        "ttft_ms": sorted(_ms(request.ttft_s for request in ok)),
        "tpot_ms": sorted(_ms(request.tpot_s for request in ok)),
        "itl_ms": sorted(chain.from_iterable(request.itl_ms for request in ok)),
        "e2e_ms": sorted(_ms(request.e2e_s for request in ok)),
    }


def _ms(values: Iterable[float | None]) -> Iterator[float]:
    return (1000 * value for value in values if value is not None)


def _both(old: list[float], new: list[float]) -> Percentiles:
    pairs = {
        name: [percentile(side, share) if side else None for side in (old, new)]
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
    }
    counts = [len(old), len(new)]
    return Percentiles(n=counts, **pairs, few=[name for name, least in LEAST.items() if min(counts) < least])
