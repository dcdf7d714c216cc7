"""What a drafter counts as a draft, so that acceptance lengths are compared only where they mean the same.

vLLM's n-gram proposers come in families. `legacy` and `numba` draft only where the context repeats itself, and count only those
steps; `gpu_v1` and `gpu_v2` count every step, with or without a match. So the same text gives the first two a longer mean acceptance
length than the others, whatever it gives in speed. Effective tokens per step counts every step for all of them.
"""

from __future__ import annotations

from typing import Literal

from service.domain.speculation import NOT_OF_THIS_RUN, Speculation

Counting = Literal["steps with a match", "every step"]

_NGRAM: dict[str, Counting] = {
    "legacy": "steps with a match",
    "numba": "steps with a match",
    "gpu_v1": "every step",
    "gpu_v2": "every step",
}
"""Family of vLLM's n-gram proposer -> what it counts."""
_SOMETIMES = ("ngram", "suffix")
"""Methods of these names (llama.cpp has five, and joins several by commas) have nothing to propose in some steps: which of the steps
they count depends on more than the method."""
_NEARLY_ALL = 0.999


def counting(method: str | None, family: str | None, shown: Speculation | None) -> Counting | None:
    """What the drafts of a measurement count; None where that is not known.

    `method` as the experiment asks for it, `family` as the engine's log tells. What the counters show weighs more: a share of
    steps without a draft cannot come from a drafter that counts every step.
    """
    if shown is not None and shown.draft_coverage is not None and shown.draft_coverage < _NEARLY_ALL:
        return "steps with a match"
    if family in _NGRAM:
        return _NGRAM[family]
    return None if method is None or any(name in method.lower() for name in _SOMETIMES) else "every step"


def incomparable(base: Speculation | None, candidate: Speculation | None, counted: tuple[Counting | None, Counting | None]) -> str | None:
    """Why the two mean acceptance lengths may not be set side by side; None where they may, or where there are not two."""
    if base is None or candidate is None or base.mean_acceptance_length is None or candidate.mean_acceptance_length is None:
        return None
    for side, shown in (("baseline", base), ("candidate", candidate)):
        if NOT_OF_THIS_RUN in shown.warnings:
            return f"that of the {side} is a gauge over a window of the engine's own, not of this run"
        if not shown.comparable:
            return f"that of the {side} is counted another way"
    if None in counted:
        return "which steps the drafter counts is not known"
    if counted[0] != counted[1]:
        return f"the baseline's counts {counted[0]}, the candidate's {counted[1]}"
    return None
