"""How large an effect is and how sure one may be: the interval behind every verdict.

The unit of replication is the load, not the request: one load's memory layout, clocks and autotuning shift all its
requests together, and no number of requests in one load averages that away. So, on the log scale,

    effect   = mean over prompts of ln(m_candidate,p / m_baseline,p),  m = mean over repeats, loads pooled
    variance = sum over both arms of  1/P^2 sum_p s_p^2 / (n_p m_p^2)  +  sigma_b^2 / L

with s_p^2 the variance of a prompt's repeats within one load (delta method: var ln m = var m / m^2), sigma_b the standard
deviation between loads and L the loads of an arm. The 95 % interval is effect +- t sqrt(variance) with
Welch-Satterthwaite degrees of freedom. Prompts are fixed, not sampled: the claim is about these prompts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import ConfigDict, Field

from service.domain.records import Record
from service.domain.statistics import Part, mean, satterthwaite_df, squares_about_mean, student_t_quantile, variance

ASSUMED_BETWEEN_LOAD_SD = 0.015
"""Of tokens/s, relative. Assumed until a host's own history says better."""

LEAST_HISTORY_DF = 4

Samples = Mapping[str, Sequence[Sequence[float]]]
"""Per prompt, per load: the values of its repeats."""

ONE_REPEAT = (
    "a prompt has one repeat only, so the noise within a load was taken from the spread over prompts, which is wider than it need be"
)
NO_VARIANCE = "one prompt with one repeat: how much it varies is not known, so nothing is shown; raise bench.repeat"


class BetweenLoad(Record):
    """The relative standard deviation of tokens/s between loads of one configuration."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    value: float
    from_: Literal["assumed", "history"] = Field(alias="from", serialization_alias="from")
    n: int
    """Degrees of freedom of the history (loads minus configurations); 0 when assumed."""


ASSUMED = BetweenLoad(value=ASSUMED_BETWEEN_LOAD_SD, from_="assumed", n=0)


class Effect(Record):
    """The overall effect at one concurrency."""

    tps_ratio: float
    """Geometric mean over prompts of candidate / baseline."""
    ci95: list[float] | None
    """Of tps_ratio. None where the noise is not known."""
    smallest_detectable: float | None
    """Half the interval's width as a change, exp(t se) - 1: the smallest measured effect whose interval excludes 0.

    A true effect of this size is shown in every second such run; one about 1.4 times as large in four of five.
    """
    between_load_sd: BetweenLoad


@dataclass(frozen=True)
class Estimate:
    """An effect, and what its uncertainty is made of."""

    effect: Effect
    within: tuple[Part, ...] = ()
    """Noise within loads, a part per arm and prompt; empty where it is not known."""
    between: BetweenLoad | None = None
    warnings: list[str] = field(default_factory=list)


def usable_between(history: BetweenLoad | None) -> BetweenLoad:
    """The history where it has enough degrees of freedom and says more than nothing, else the assumption."""
    if history is None or history.from_ != "history" or history.n < LEAST_HISTORY_DF or not 0 < history.value < math.inf:
        return ASSUMED
    return history


def between_from_history(groups: Sequence[Sequence[Samples]]) -> BetweenLoad | None:
    """Pooled from repeated loads: a group holds the loads of one configuration, bench phase and host.

    A load's value is the mean over prompts of ln(mean of its repeats); the standard deviation is pooled over groups. It holds
    the noise within loads too, so it errs on the careful side. None without a repeated load.
    """
    squares, df = 0.0, 0
    for group in groups:
        values = [mean([math.log(mean(repeats)) for loads in load.values() for repeats in loads if repeats]) for load in group if load]
        if len(values) > 1:
            squares += squares_about_mean(values)
            df += len(values) - 1
    return BetweenLoad(value=math.sqrt(squares / df), from_="history", n=df) if df else None


def estimate(base: Samples, candidate: Samples, history: BetweenLoad | None = None, unsure: float = 0.0) -> Estimate | None:
    """The effect over the prompts that both have; None where there is no such prompt.

    `unsure` is added to half the interval of the logarithm: what the host's own drift may have done to one side.
    """
    prompts = [prompt for prompt in base if _pooled(base, prompt) and _pooled(candidate, prompt)]
    if not prompts:
        return None
    logs = [math.log(mean(_pooled(candidate, prompt)) / mean(_pooled(base, prompt))) for prompt in prompts]
    sd = usable_between(history)
    within = _within_parts(prompts, (base, candidate))
    warnings = []
    if within is None:
        within = _spread_over_prompts(logs)
        warnings.append(NO_VARIANCE if within is None else ONE_REPEAT)
    ratio = math.exp(mean(logs))
    if within is None:
        return Estimate(Effect(tps_ratio=ratio, ci95=None, smallest_detectable=None, between_load_sd=sd), warnings=warnings)
    half = half_width(within, sd, *(_loads(arm, prompts) for arm in (base, candidate))) + unsure
    effect = Effect(
        tps_ratio=ratio,
        ci95=[ratio * math.exp(-half), ratio * math.exp(half)],
        smallest_detectable=math.expm1(half),
        between_load_sd=sd,
    )
    return Estimate(effect, tuple(within), sd, warnings)


def half_width(within: Sequence[Part], between: BetweenLoad, base_loads: int, candidate_loads: int) -> float:
    """Half the 95 % interval of the logarithm of the ratio."""
    df = between.n if between.from_ == "history" else math.inf
    loads = Part(between.value**2 * (1 / base_loads + 1 / candidate_loads), df)
    t = student_t_quantile(0.975, satterthwaite_df([*within, loads]))
    return t * math.sqrt(math.fsum(part.variance for part in within) + loads.variance)


def _pooled(arm: Samples, prompt: str) -> list[float]:
    return [value for repeats in arm.get(prompt, ()) for value in repeats]


def _loads(arm: Samples, prompts: Sequence[str]) -> int:
    """Loads behind an arm's figures. Where prompts differ in it the fewest count."""
    return min(sum(1 for repeats in arm[prompt] if repeats) for prompt in prompts)


def _within_parts(prompts: Sequence[str], arms: Sequence[Samples]) -> list[Part] | None:
    """Noise within loads, a part per arm and prompt; None as soon as one of them cannot be estimated."""
    parts = []
    for arm in arms:
        for prompt in prompts:
            values = _pooled(arm, prompt)
            noise = _repeat_noise([repeats for repeats in arm[prompt] if repeats], values)
            if noise is None:
                return None
            scale = len(values) * mean(values) ** 2 * len(prompts) ** 2
            parts.append(Part(noise.variance / scale, noise.df))
    return parts


def _repeat_noise(loads: Sequence[Sequence[float]], values: Sequence[float]) -> Part | None:
    """Variance of repeats within a load, pooled over loads; over loads where each has one repeat, which holds more than that."""
    df = len(values) - len(loads)
    if df > 0:
        return Part(math.fsum(squares_about_mean(repeats) for repeats in loads) / df, df)
    return Part(variance(values), len(values) - 1) if len(values) > 1 else None


def _spread_over_prompts(logs: Sequence[float]) -> list[Part] | None:
    """The prompts' disagreement about the effect: noise of both arms, and how the effect differs between prompts on top."""
    return [Part(variance(logs) / len(logs), len(logs) - 1)] if len(logs) > 1 else None
