"""What to try next, from what a night brought: each sentence stands on a figure of a comparison or on a reason's remedy."""

from __future__ import annotations

from collections.abc import Iterator

from service.domain.comparison import Comparison, PhaseComparison
from service.domain.digest import NightFacts, ranked
from service.domain.experiment_messages import ExperimentFacts
from service.domain.figures import counted, named
from service.domain.reasons import RULES, Reason, ReasonClass
from service.domain.speculation import Speculation
from service.domain.status import Outcome

RARELY, OFTEN = 0.2, 0.6
"""Shares of accepted drafts: a position below the first is hardly worth its verification, one above the second asks for a longer draft."""
TOLD = 3
"""Sentences of one experiment."""


def next_steps(facts: NightFacts) -> list[str]:
    """Sentences for people, what the best result asks for first."""
    found = [line for one in ranked(facts) for line in list(_after(one))[:TOLD]]
    found += _without_baseline(facts)
    found += _after_failures(facts)
    return list(dict.fromkeys(found))


def _after(one: ExperimentFacts) -> Iterator[str]:
    compared = one.comparison
    if compared is None:
        return
    first = compared.bench_phases[0] if compared.bench_phases else None
    if compared.verdict == "better" and first is not None:
        yield from _after_a_gain(one.id, compared, first)
    elif compared.verdict == "worse" and first is not None:
        yield from _after_a_loss(one.id, first)
    elif compared.verdict == "no_difference_shown":
        yield from (f"{one.id}: {line}." for line in compared.advice if "would show" in line)
    elif compared.verdict == "not_comparable":
        yield f"{one.id} cannot be judged against {compared.baseline} ({'; '.join(compared.why_not)}): measure both alike."


def _after_a_gain(number: int, compared: Comparison, phase: PhaseComparison) -> Iterator[str]:
    if min(phase.loads, default=0) == 1:
        yield f"Confirm {number}: one load stands behind a side; `repeat_load: 3` on both would show whether it lasts."
    yield f"Make it the baseline of what follows: `expctl baseline set {number}` (so far it is {compared.baseline})."
    shares = _shares(phase.speculation["candidate"])
    if shares and shares[-1] >= OFTEN:
        yield f"{number}: drafts are accepted at {_percent(shares[-1])} even at position {len(shares)}: try a longer draft."


def _after_a_loss(number: int, phase: PhaseComparison) -> Iterator[str]:
    shares = _shares(phase.speculation["candidate"])
    worth = next((place for place, share in enumerate(shares) if share < RARELY), len(shares))
    if 0 < worth < len(shares):
        low = _percent(shares[worth])
        yield f"{number}: only {low} of drafts are accepted at position {worth + 1}: try a draft of {counted(worth, 'token')}."
    known = [row for row in phase.prompts if row.break_even_tokens_per_step is not None and row.tokens_per_step is not None]
    short = [row for row in known if (row.tokens_per_step or 0) < (row.break_even_tokens_per_step or 0)]
    if short:
        row = max(short, key=lambda one: (one.break_even_tokens_per_step or 0) - (one.tokens_per_step or 0))
        yield (
            f"{number}: {len(short)} of {counted(len(known), 'prompt')} stay below break-even (worst: {row.prompt}, "
            f"{row.tokens_per_step:.2f} tokens per step of {row.break_even_tokens_per_step:.2f}): "
            "a drafter that is accepted more often, or a cheaper step."
        )


def _without_baseline(facts: NightFacts) -> list[str]:
    alone = [one for one in facts.experiments if one.outcome == Outcome.SUCCEEDED and one.comparison is None and not one.not_compared]
    measured = [one for one in alone if one.phases]
    if not measured or len(measured) < len([one for one in facts.experiments if one.outcome == Outcome.SUCCEEDED and one.phases]):
        return []
    return [f"Nothing was compared: pin a baseline for what follows, such as `expctl baseline set {measured[0].id}`."]


def _after_failures(facts: NightFacts) -> list[str]:
    lost = [one for one in facts.experiments if one.outcome in {Outcome.FAILED, Outcome.INVALID} and one.reason is not None]
    found = []
    for reason in dict.fromkeys(one.reason for one in lost):
        ids = [str(one.id) for one in lost if one.reason == reason]
        if reason is not None:
            found.append(f"{named(ids)}: {RULES[reason].remedy}; then {_again(reason, ids[0])}.")
    return found


def _again(reason: Reason, number: str) -> str:
    """What is wrong with the file itself would fail again."""
    unchanged = RULES[reason].reason_class not in {ReasonClass.CONFIG, ReasonClass.OOM}
    return f"`expctl retry {number}`" if unchanged else "submit the changed file"


def _shares(speculation: Speculation | None) -> list[float]:
    return list(speculation.per_position_acceptance or ()) if speculation is not None and speculation.status == "on" else []


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
