"""Two experiments side by side, and an honest verdict: better, worse, or no difference shown.

`compare` judges; `service.domain.effect` holds the interval, `service.domain.comparability` what must be the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from service.domain.comparability import Arm, doubts, faults, prompt_order, spec_differences, why_not_comparable
from service.domain.condition import fails
from service.domain.effect import BetweenLoad, Effect, Estimate, Samples, advise, estimate
from service.domain.measurement import PhaseResult, RequestResult
from service.domain.records import Record
from service.domain.speculation import Speculation, merge
from service.domain.statistics import mean

__all__ = ["COMPARISON_SCHEMA", "Arm", "BetweenLoad", "Comparison", "Effect", "PhaseComparison", "PromptRow", "compare", "fails", "samples"]

COMPARISON_SCHEMA = "expctl.comparison/1"

Verdict = Literal["better", "worse", "no_difference_shown", "not_comparable", "invalid"]


class PromptRow(Record):
    """One prompt on both sides; every pair is [baseline, candidate], a mean over the ok requests."""

    prompt: str
    tps: list[float | None]
    tps_change: float | None
    """candidate / baseline - 1."""
    tps_change_ci95: list[float] | None = None
    """For this prompt alone. Of several prompts one may exclude 0 by chance; the verdict is about all of them."""
    ttft_ms: list[float | None]
    tpot_ms: list[float | None]
    tokens_per_step: float | None = None
    """Effective, of the candidate; known at concurrency 1 only, where a request has the counters to itself."""
    step_time_ratio: float | None = None
    """How much longer a step takes: (TPOT x tokens per step) of the candidate over that of the baseline."""
    break_even_tokens_per_step: float | None = None
    """Tokens a step at which the candidate's steps would give the baseline's speed: r = TPOT_candidate x tokens per step / TPOT_baseline.

    A lower bound for drafters that cost time themselves. None where the candidate does not speculate.
    """


class PhaseComparison(Record):
    """One concurrency level."""

    concurrency: int
    verdict: Verdict
    effect: Effect | None
    """None unless both arms are valid and comparable: a number would be believed."""
    prompts: list[PromptRow]
    output_tps: list[float | None]
    """Tokens of ok requests / wall time, loads pooled: [baseline, candidate]."""
    loads: list[int]
    """How many loads stand behind each side: [baseline, candidate]."""
    speculation: dict[Literal["baseline", "candidate"], Speculation | None]


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
    warnings: list[str]
    advice: list[str] = Field(default_factory=list)
    """What would show a smaller effect, where none was shown."""


def compare(base: Arm, candidate: Arm, between: BetweenLoad | None = None, *, now: datetime | None = None) -> Comparison:
    """Judge a candidate against a baseline.

    `between`: this host's history of repeated loads; with fewer than 4 degrees of freedom 1.5 % is assumed. `now` is what a
    baseline's age is counted to besides the candidate's own time.
    """
    why_not = why_not_comparable(base, candidate)
    broken = faults(base, candidate)
    refused: Verdict | None = "invalid" if broken else "not_comparable" if why_not else None
    warnings = list(broken)
    advice: list[str] = []
    phases: list[PhaseComparison] = []
    for level in _levels(base, candidate, warnings):
        old, new = _phases(base, level), _phases(candidate, level)
        found = None if refused else estimate(samples(old), samples(new), between)
        verdict = refused or _verdict(found)
        if not phases and found and verdict == "no_difference_shown":
            advice = advise(found, len(old), len(new))
        warnings += _phase_warnings(level, old, new, found, refused)
        phases.append(_phase(level, verdict, found, old, new, between, prompt_order(base)))
    warnings += _disagreement(phases) + _idle_speculation(phases, base, candidate) + doubts(base, candidate, now)
    return Comparison(
        baseline=base.experiment,
        candidate=candidate.experiment,
        comparable=not why_not,
        why_not=why_not,
        verdict=phases[0].verdict if phases else refused or "invalid",
        bench_phases=phases,
        spec_differences=spec_differences(base.spec, candidate.spec),
        warnings=list(dict.fromkeys(warnings)),
        advice=advice,
    )


def _levels(base: Arm, candidate: Arm, warnings: list[str]) -> list[int]:
    """Concurrency levels that every load of both measured, in order; the others are named in a warning."""
    loads = [{phase.concurrency for phase in phases} for arm in (base, candidate) for phases in arm.loads if phases]
    seen = list(dict.fromkeys(phase.concurrency for arm in (candidate, base) for phases in arm.loads for phase in phases))
    common = [level for level in seen if all(level in load for load in loads)]
    warnings += [f"concurrency {level} was not measured in every load, so it is left out" for level in seen if level not in common]
    return common


def _phases(arm: Arm, level: int) -> list[PhaseResult]:
    return [phase for phases in arm.loads for phase in phases if phase.concurrency == level]


def samples(phases: Iterable[PhaseResult]) -> Samples:
    """Decode speeds of the ok requests: prompt to a list a load."""
    listed = list(phases)
    prompts = sorted({request.prompt for phase in listed for request in phase.requests})
    return {
        prompt: [[request.tps for request in phase.requests if request.prompt == prompt and request.ok and request.tps] for phase in listed]
        for prompt in prompts
    }


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
        result.append(f"concurrency {level}: no prompt has tokens/s on both sides; the server reported no usage")
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
    rows = [_row(prompt, level, old, new) for prompt in prompts]
    if found is not None:
        rows = [row.model_copy(update={"tps_change_ci95": _row_interval(row.prompt, old, new, between)}) for row in rows]
    return PhaseComparison(
        concurrency=level,
        verdict=verdict,
        effect=found.effect if found else None,
        prompts=rows,
        loads=[len(old), len(new)],
        output_tps=[_output_tps(old), _output_tps(new)],
        speculation={
            "baseline": merge(phase.speculation for phase in old),
            "candidate": merge(phase.speculation for phase in new),
        },
    )


def _row(prompt: str, level: int, old: list[PhaseResult], new: list[PhaseResult]) -> PromptRow:
    sides = [
        [request for phase in phases for request in phase.requests if request.prompt == prompt and request.ok] for phases in (old, new)
    ]
    tps = [_mean(request.tps for request in side) for side in sides]
    tpot = [_mean(request.tpot_s for request in side) for side in sides]
    steps = [_tokens_per_step(prompt, phases) if level == 1 else None for phases in (old, new)]
    ratio = _quotient(_product(tpot[1], steps[1]), _product(tpot[0], steps[0]))
    off = all(
        (found := request.speculation or phase.speculation) is not None and found.status == "off"
        for phase in new
        for request in phase.requests
        if request.prompt == prompt
    )
    return PromptRow(
        prompt=prompt,
        tps=tps,
        tps_change=None if not tps[0] or tps[1] is None else tps[1] / tps[0] - 1,
        ttft_ms=[_ms(_mean(request.ttft_s for request in side)) for side in sides],
        tpot_ms=[_ms(value) for value in tpot],
        tokens_per_step=steps[1],
        step_time_ratio=ratio,
        break_even_tokens_per_step=None if off else _quotient(_product(tpot[1], steps[1]), tpot[0]),
    )


def _row_interval(prompt: str, old: list[PhaseResult], new: list[PhaseResult], between: BetweenLoad | None) -> list[float] | None:
    one = [{prompt: samples(phases).get(prompt, [])} for phases in (old, new)]
    found = estimate(one[0], one[1], between)
    return None if found is None or found.effect.ci95 is None else [bound - 1 for bound in found.effect.ci95]


def _tokens_per_step(prompt: str, phases: list[PhaseResult]) -> float | None:
    """Effective tokens per step, pooled over a prompt's requests; 1 where nothing speculates, None where one is not known.

    A request gives completion_tokens - 1 by decode steps, the first token being the prefill's; of these the accepted ones took
    no step of their own, and there were at least as many steps as drafts.
    """
    tokens, steps = 0, 0
    for phase in phases:
        for request in phase.requests:
            if request.prompt != prompt or not request.ok:
                continue
            counted = _decode_steps(request, request.speculation or phase.speculation)
            if counted is None or request.completion_tokens is None:
                return None
            tokens += request.completion_tokens - 1
            steps += counted
    return tokens / steps if steps else None


def _decode_steps(request: RequestResult, speculation: Speculation | None) -> int | None:
    if speculation is None or request.completion_tokens is None:
        return None
    if speculation.status in {"off", "never_drafted"}:
        return request.completion_tokens - 1
    own = speculation if request.speculation is not None else None
    if own is None or own.status != "on" or not own.comparable or own.accepted_tokens is None:
        return None
    return max(request.completion_tokens - 1 - own.accepted_tokens, own.drafts or 0)


def _output_tps(phases: list[PhaseResult]) -> float | None:
    tokens = [phase.summary.output_tokens for phase in phases]
    duration = sum(phase.summary.duration_s for phase in phases)
    known = [count for count in tokens if count is not None]
    return sum(known) / duration if len(known) == len(tokens) and duration > 0 else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if known else None


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def _product(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one * other


def _quotient(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else one / other


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
