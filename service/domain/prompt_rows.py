"""One prompt on both sides of a comparison: its means, and what a step of the engine costs and gives."""

from __future__ import annotations

from collections.abc import Iterable

from service.domain.effect import Samples
from service.domain.measurement import PhaseResult, RequestResult
from service.domain.records import Record
from service.domain.speculation import V0_COUNTERS, Speculation
from service.domain.statistics import mean


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


def samples(phases: Iterable[PhaseResult]) -> Samples:
    """Decode speeds of the ok requests: prompt to a list a load."""
    listed = list(phases)
    prompts = sorted({request.prompt for phase in listed for request in phase.requests})
    return {
        prompt: [[request.tps for request in phase.requests if request.prompt == prompt and request.ok and request.tps] for phase in listed]
        for prompt in prompts
    }


def by_prompt(phases: Iterable[PhaseResult], prompts: Iterable[str]) -> dict[str, list[PhaseResult]]:
    """Each prompt to the phases with its requests alone, so that a look at one prompt does not go through those of all others."""
    grouped: list[tuple[PhaseResult, dict[str, list[RequestResult]]]] = []
    for phase in phases:
        groups: dict[str, list[RequestResult]] = {}
        for request in phase.requests:
            groups.setdefault(request.prompt, []).append(request)
        grouped.append((phase, groups))
    return {prompt: [phase.model_copy(update={"requests": groups.get(prompt, [])}) for phase, groups in grouped] for prompt in prompts}


def prompt_row(prompt: str, level: int, old: list[PhaseResult], new: list[PhaseResult]) -> PromptRow:
    """What was measured of one prompt at one level, loads pooled."""
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
    if own is None or own.status != "on" or own.accepted_tokens is None or V0_COUNTERS in own.warnings:
        return None
    return max(request.completion_tokens - 1 - own.accepted_tokens, own.drafts or 0)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if known else None


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def _product(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one * other


def _quotient(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else one / other
