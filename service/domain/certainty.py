"""What would buy certainty where a comparison shows no difference: more loads, more repeats, or the baseline once more.

Each is worked out with the variances of this comparison, so that a person sees what an hour of the host would give.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from service.domain.effect import BetweenLoad, Estimate, half_width
from service.domain.statistics import Part

_MORE_REPEATS = 4
_LEAST_GAIN = 0.05
"""A width that shrinks by less is no reason to spend a load."""
RECHECK = "recheck_baseline: true (the baseline once more, after the candidate) would show {} or more, and tell drift of the host apart"


def advise(found: Estimate, base_loads: int, candidate_loads: int, repeats: int, *, rechecked: bool = False) -> list[str]:
    """What would show a smaller effect, the most helpful first; nothing where the noise is not known."""
    between = found.between
    if between is None or found.effect.smallest_detectable is None:
        return []
    now = half_width(found.within, between, base_loads, candidate_loads)
    if now <= 0:
        return []
    loads = 3 * max(base_loads, candidate_loads)
    scale = (base_loads + candidate_loads) / (2 * loads)
    offers = [
        (half_width(_more(found.within, 1 / scale), between, loads, loads), f"repeat_load: {loads} on both sides would show {{}} or more"),
        (
            half_width(_more(found.within, _MORE_REPEATS), between, base_loads, candidate_loads),
            f"bench.repeat: {_MORE_REPEATS * repeats} would show {{}} or more",
        ),
    ]
    if not rechecked:
        # The baseline's parts are half of them; its repeats double, and so do its loads.
        half = len(found.within) // 2
        within = [*_more(found.within[:half], 2), *found.within[half:]] if half else list(found.within)
        width = half_width(within, between, 2 * base_loads, candidate_loads)
        offers.append(
            (
                width,
                RECHECK,
            )
        )
    helpful = sorted((width, words) for width, words in offers if width < now * (1 - _LEAST_GAIN))
    result = [words.format(f"{100 * math.expm1(width):.1f} %") for width, words in helpful]
    return [*_where_it_comes_from(found, between, base_loads, candidate_loads), *result]


def _more(parts: Sequence[Part], times: float) -> list[Part]:
    """The same noise with so many times the repeats behind it."""
    return [Part(part.variance / times, part.df * times) for part in parts]


def _where_it_comes_from(found: Estimate, between: BetweenLoad, base_loads: int, candidate_loads: int) -> list[str]:
    loads = between.value**2 * (1 / base_loads + 1 / candidate_loads)
    total = loads + math.fsum(part.variance for part in found.within)
    seen = f"this comparison could have shown {100 * (found.effect.smallest_detectable or 0):.1f} % or more"
    lines = [f"{seen}; differences between loads make up {100 * loads / total:.0f} % of its uncertainty"] if total > 0 else [seen]
    if between.from_ == "assumed":
        lines.append("the difference between loads is assumed: four loads more of configurations measured here before would replace it")
    return lines
