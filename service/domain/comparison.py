"""Two experiments side by side, and an honest verdict: better, worse, or no difference shown.

`compare` judges; `service.domain.effect` holds the interval, `service.domain.comparability` what must be the same.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from service.domain.certainty import advise
from service.domain.comparability import (
    Arm,
    all_loads,
    doubts,
    faults,
    prompt_order,
    spec_differences,
    spec_equalities,
    why_not_comparable,
)
from service.domain.condition import fails
from service.domain.drafters import Counting, counting, incomparable
from service.domain.effect import BetweenLoad, Effect, Estimate, estimate
from service.domain.measurement import PhaseResult
from service.domain.percentiles import Figure, Percentiles, percentiles
from service.domain.prompt_rows import PromptRow, by_prompt, prompt_row, samples
from service.domain.records import Record
from service.domain.speculation import Speculation
from service.domain.speculation_pool import merge

__all__ = ["COMPARISON_SCHEMA", "Arm", "BetweenLoad", "Comparison", "Effect", "PhaseComparison", "PromptRow", "compare", "fails", "samples"]

COMPARISON_SCHEMA = "expctl.comparison/1"

_NOT_LOADED = frozenset({"endpoint"})
"""Kinds of engine that serve already: no load more of theirs can be asked for."""

Side = Literal["baseline", "recheck", "candidate"]
Verdict = Literal["better", "worse", "no_difference_shown", "not_comparable", "invalid"]


class Drift(Record):
    """The baseline after the candidate over the baseline before it."""

    tps_ratio: float
    ci95: list[float] | None
    shown: bool
    """Whether the interval excludes 1. Then the effect's own interval is wider by half the drift on either side: the change may have
    come before the candidate or after it."""


class PhaseComparison(Record):
    """One concurrency level."""

    concurrency: int
    verdict: Verdict
    effect: Effect | None
    """None unless both arms are valid and comparable: a number would be believed."""
    drift: Drift | None = None
    """How the host changed meanwhile; only where the baseline was measured again after the candidate."""
    prompts: list[PromptRow]
    output_tps: list[float | None]
    """Tokens of ok requests / wall time, loads pooled: [baseline, candidate]."""
    loads: list[int]
    """How many loads stand behind each side: [baseline, candidate]."""
    percentiles: dict[Figure, Percentiles] = Field(default_factory=dict)
    """Over the ok requests of all prompts and loads together. The verdict does not stand on them, and they carry no interval."""
    speculation: dict[Literal["baseline", "candidate"], Speculation | None]
    acceptance_not_comparable: str | None = None
    """Why the two mean acceptance lengths may not be set side by side; null where they may, or where there are not two."""


class Comparison(Record):
    """Whether it helped, and how sure one may be."""

    schema_: str = Field(default=COMPARISON_SCHEMA, alias="schema", serialization_alias="schema")
    baseline: int
    candidate: int
    comparable: bool
    why_not: list[str]
    verdict: Verdict
    """That of the first bench phase."""
    bench_phases: list[PhaseComparison]
    spec_differences: dict[str, list[Any]]
    equal_fields: int = 0
    """How many fields of the two specs are the same."""
    spec_equal: dict[str, Any] | None = None
    """Dotted path to the value that both have; null where it was not asked for."""
    warnings: list[str]
    experiments: dict[Side, list[int]] = Field(default_factory=dict)
    """The experiment of each load behind the figures; `recheck`: the baseline's that were measured after the candidate."""
    advice: list[str] = Field(default_factory=list)
    """What would show a smaller effect, where none was shown."""


def compare(
    base: Arm, candidate: Arm, between: BetweenLoad | None = None, *, now: datetime | None = None, all_fields: bool = False
) -> Comparison:
    """Judge a candidate against a baseline.

    `between`: this host's history of repeated loads; with fewer than 4 degrees of freedom 1.5 % is assumed. `now` is what a
    baseline's age is counted to besides the candidate's own time. `all_fields`: with what the specs have in common, too.
    """
    why_not = why_not_comparable(base, candidate)
    broken = faults(base, candidate)
    refused: Verdict | None = "invalid" if broken else "not_comparable" if why_not else None
    warnings = list(broken)
    advice: list[str] = []
    phases: list[PhaseComparison] = []
    for level in _levels(base, candidate, warnings):
        old, new = _phases(all_loads(base), level), _phases(all_loads(candidate), level)
        drift = None if refused else _drift(base, level, between)
        unsure = abs(math.log(drift.tps_ratio)) / 2 if drift and drift.shown else 0.0
        found = None if refused else estimate(samples(old), samples(new), between, unsure)
        verdict = refused or _verdict(found)
        if not phases and found and verdict == "no_difference_shown":
            loadable = all(_kind(arm) not in _NOT_LOADED for arm in (base, candidate))
            advice = advise(found, len(old), len(new), _repeats(old), rechecked=bool(base.recheck), loadable=loadable)
        warnings += _phase_warnings(level, old, new, found, refused)
        phase = _phase(level, verdict, found, old, new, between, prompt_order(base))
        apart = incomparable(phase.speculation["baseline"], phase.speculation["candidate"], _counted(phase, base, candidate))
        phases.append(phase.model_copy(update={"drift": drift, "acceptance_not_comparable": apart}))
    warnings += _remarks(phases, base, candidate) + doubts(base, candidate, now)
    equal = spec_equalities(base.spec, candidate.spec)
    return Comparison(
        baseline=base.experiment,
        candidate=candidate.experiment,
        comparable=not why_not,
        why_not=why_not,
        verdict=phases[0].verdict if phases else refused or "invalid",
        bench_phases=phases,
        spec_differences=spec_differences(base.spec, candidate.spec),
        equal_fields=len(equal),
        spec_equal=equal if all_fields else None,
        warnings=list(dict.fromkeys(warnings)),
        experiments=_experiments(base, candidate),
        advice=advice,
    )


def _remarks(phases: list[PhaseComparison], base: Arm, candidate: Arm) -> list[str]:
    """What the levels taken together give reason to say."""
    result = [f"concurrency {phase.concurrency}: {_drifted(phase.drift)}" for phase in phases if phase.drift and phase.drift.shown]
    apart = next((phase.acceptance_not_comparable for phase in phases if phase.acceptance_not_comparable), None)
    result += [f"the mean acceptance lengths do not compare: {apart}; effective tokens per step do"] if apart else []
    return result + _disagreement(phases) + _idle_speculation(phases, base, candidate)


def _kind(arm: Arm) -> str:
    return str((arm.spec.get("engine") or {}).get("kind"))


def _experiments(base: Arm, candidate: Arm) -> dict[Side, list[int]]:
    before = len(base.experiments) - len(base.recheck)
    return {"baseline": base.experiments[:before], "recheck": base.experiments[before:], "candidate": candidate.experiments}


def _levels(base: Arm, candidate: Arm, warnings: list[str]) -> list[int]:
    """Concurrency levels that every load of both measured, in order; the others are named in a warning."""
    loads = [{phase.concurrency for phase in phases} for arm in (base, candidate) for phases in all_loads(arm) if phases]
    seen = list(dict.fromkeys(phase.concurrency for arm in (candidate, base) for phases in all_loads(arm) for phase in phases))
    common = [level for level in seen if all(level in load for load in loads)]
    warnings += [f"concurrency {level} was not measured in every load, so it is left out" for level in seen if level not in common]
    return common


def _phases(loads: list[list[PhaseResult]], level: int) -> list[PhaseResult]:
    return [phase for phases in loads for phase in phases if phase.concurrency == level]


def _repeats(phases: list[PhaseResult]) -> int:
    """How often each prompt was sent a load."""
    return max((request.repeat + 1 for phase in phases for request in phase.requests), default=1)


def _drift(base: Arm, level: int, between: BetweenLoad | None) -> Drift | None:
    """The baseline's later loads against its earlier ones; None where there are none of one kind."""
    before, after = _phases(base.loads, level), _phases(base.recheck, level)
    found = estimate(samples(before), samples(after), between) if before and after else None
    if found is None:
        return None
    interval = found.effect.ci95
    return Drift(tps_ratio=found.effect.tps_ratio, ci95=interval, shown=interval is not None and not interval[0] <= 1 <= interval[1])


def _drifted(drift: Drift) -> str:
    change = drift.tps_ratio - 1
    words = "faster" if change > 0 else "slower"
    return f"the host drifted: the baseline was {100 * abs(change):.1f} % {words} when measured again, and the interval allows for it"


def _counted(phase: PhaseComparison, base: Arm, candidate: Arm) -> tuple[Counting | None, Counting | None]:
    """What each side's drafter counts as a draft."""
    shown = phase.speculation
    return _counting(base, shown["baseline"]), _counting(candidate, shown["candidate"])


def _counting(arm: Arm, shown: Speculation | None) -> Counting | None:
    asked = (arm.spec.get("engine") or {}).get("speculative") or {}
    return counting(asked.get("method"), arm.ngram_family, shown)


def _verdict(found: Estimate | None) -> Verdict:
    if found is None:
        return "invalid"
    interval = found.effect.ci95
    if interval is None or interval[0] <= 1 <= interval[1]:
        return "no_difference_shown"
    return "better" if interval[0] > 1 else "worse"


def _phase_warnings(
    level: int, old: list[PhaseResult], new: list[PhaseResult], found: Estimate | None, refused: Verdict | None
) -> list[str]:
    result = [f"concurrency {level}: {warning}" for warning in (found.warnings if found else [])]
    if found is None and refused is None:
        before, after = ({request.prompt for phase in phases for request in phase.requests} for phases in (old, new))
        why = "no prompt has tokens/s on both sides; the server reported no usage" if before & after else "the two have no prompt in common"
        result.append(f"concurrency {level}: {why}")
    for side, phases in (("baseline", old), ("candidate", new)):
        unknown = sum(1 for phase in phases for request in phase.requests if request.ok and not request.tps)
        if unknown:
            result.append(f"concurrency {level}: tokens/s of {unknown} request{'s' if unknown > 1 else ''} of the {side} not known")
    return result


def _phase(
    level: int,
    verdict: Verdict,
    found: Estimate | None,
    old: list[PhaseResult],
    new: list[PhaseResult],
    between: BetweenLoad | None,
    order: list[str],
) -> PhaseComparison:
    measured = {request.prompt for phase in (*old, *new) for request in phase.requests}
    prompts = [prompt for prompt in order if prompt in measured] + sorted(measured - set(order))
    before, after = by_prompt(old, prompts), by_prompt(new, prompts)
    rows = [prompt_row(prompt, level, before[prompt], after[prompt]) for prompt in prompts]
    if found is not None:
        intervals = [_row_interval(prompt, before[prompt], after[prompt], between) for prompt in prompts]
        rows = [row.model_copy(update={"tps_change_ci95": interval}) for row, interval in zip(rows, intervals, strict=True)]
    return PhaseComparison(
        concurrency=level,
        verdict=verdict,
        effect=found.effect if found else None,
        prompts=rows,
        loads=[len(old), len(new)],
        output_tps=[_output_tps(old), _output_tps(new)],
        percentiles=percentiles(old, new),
        speculation={
            "baseline": merge(phase.speculation for phase in old),
            "candidate": merge(phase.speculation for phase in new),
        },
    )


def _row_interval(prompt: str, old: list[PhaseResult], new: list[PhaseResult], between: BetweenLoad | None) -> list[float] | None:
    one = [{prompt: samples(phases).get(prompt, [])} for phases in (old, new)]
    found = estimate(one[0], one[1], between)
    return None if found is None or found.effect.ci95 is None else [bound - 1 for bound in found.effect.ci95]


def _output_tps(phases: list[PhaseResult]) -> float | None:
    tokens = [phase.summary.output_tokens for phase in phases]
    duration = sum(phase.summary.duration_s for phase in phases)
    known = [count for count in tokens if count is not None]
    return sum(known) / duration if len(known) == len(tokens) and duration > 0 else None


def _disagreement(phases: list[PhaseComparison]) -> list[str]:
    if len({phase.verdict for phase in phases}) <= 1:
        return []
    listed = ", ".join(f"{phase.verdict.replace('_', ' ')} at concurrency {phase.concurrency}" for phase in phases)
    return [f"the bench phases disagree: {listed}; the verdict is that of the first"]


def _idle_speculation(phases: list[PhaseComparison], base: Arm, candidate: Arm) -> list[str]:
    """Speculation that was asked for and did nothing is a finding of its own."""
    result = []
    for side, arm in (("baseline", base), ("candidate", candidate)):
        asked = (arm.spec.get("engine") or {}).get("speculative")
        shown = [spec for phase in phases for key, spec in phase.speculation.items() if key == side and spec]
        statuses = {spec.status for spec in shown}
        if asked and statuses == {"off"}:
            result.append(f"the {side} asks for speculation, but its engine shows none: it is not active")
        if asked and statuses == {"never_drafted"}:
            result.append(f"speculation of the {side} never drafted anything")
        if not all(spec.comparable for spec in shown):
            result.append(f"speculation figures of the {side} are counted another way and do not compare")
    return result
