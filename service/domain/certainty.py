"""What would buy certainty where a comparison shows no difference: more loads, more repeats, or the baseline once more.

Each is worked out with the variances of this comparison, so that a person sees what an hour of the host would give.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from service.domain.effect import BetweenLoad, Estimate, half_width
from service.domain.spec import MOST_LOADS
from service.domain.statistics import Part

_MORE_REPEATS = 4
_LEAST_GAIN = 0.05
"""A width that shrinks by less is no reason to spend a load."""
RECHECK = "recheck_baseline: true (the baseline once more, after the candidate) would show {} or more, and tell drift of the host apart"


def advise(
    found: Estimate, base_loads: int, candidate_loads: int, repeats: int, *, rechecked: bool = False, loadable: bool = True
) -> list[str]:
    """What would show a smaller effect, the most helpful first; nothing where the noise is not known.

    `rechecked`: the baseline was measured after the candidate too. `loadable`: expctl loads both sides, and may do so again.
    """
    between = found.between
    if between is None or found.effect.smallest_detectable is None:
        return []
    now = half_width(found.within, between, base_loads, candidate_loads)
    if now <= 0:
        return []

    def width(base_times: float, candidate_times: float, loads: tuple[int, int]) -> float:
        return half_width(_more(found.within, base_times, candidate_times), between, *loads)

    repeated = width(_MORE_REPEATS, _MORE_REPEATS, (base_loads, candidate_loads))
    offers = [(repeated, f"bench.repeat: {_MORE_REPEATS * repeats} would show {{}} or more")]
    loads = min(_more_loads(base_loads, candidate_loads), MOST_LOADS)
    if loadable and loads > min(base_loads, candidate_loads):
        words = f"repeat_load: {loads} on both sides would show {{}} or more"
        offers.append((width(loads / base_loads, loads / candidate_loads, (loads, loads)), words))
    if loadable and not rechecked:
        offers.append((width((base_loads + 1) / base_loads, 1, (base_loads + 1, candidate_loads)), RECHECK))
    helpful = sorted((one, words) for one, words in offers if one < now * (1 - _LEAST_GAIN))
    result = [words.format(f"{100 * math.expm1(one):.1f} %") for one, words in helpful]
    return [*_where_it_comes_from(found, between, base_loads, candidate_loads), *result]


def _more_loads(base_loads: int, candidate_loads: int) -> int:
    """As many as the side that has more, else some more of both."""
    if base_loads != candidate_loads:
        return max(base_loads, candidate_loads)
    return 3 if base_loads == 1 else 2 * base_loads


def _more(parts: Sequence[Part], base_times: float, candidate_times: float) -> list[Part]:
    """The same noise with so many times the repeats behind it. The first half is the baseline's, unless both are one part."""
    half = len(parts) // 2
    if not half:
        return [_averaged(part, (base_times + candidate_times) / 2) for part in parts]
    return [_averaged(part, base_times if place < half else candidate_times) for place, part in enumerate(parts)]


def _averaged(part: Part, times: float) -> Part:
    return Part(part.variance / times, part.df * times)


def _where_it_comes_from(found: Estimate, between: BetweenLoad, base_loads: int, candidate_loads: int) -> list[str]:
    loads = between.value**2 * (1 / base_loads + 1 / candidate_loads)
    total = loads + math.fsum(part.variance for part in found.within)
    seen = f"this comparison could have shown {100 * (found.effect.smallest_detectable or 0):.1f} % or more"
    lines = [f"{seen}; differences between loads make up {100 * loads / total:.0f} % of its uncertainty"] if total > 0 else [seen]
    if between.from_ == "assumed":
        lines.append("the difference between loads is assumed: four loads more of configurations measured here before would replace it")
    return lines
