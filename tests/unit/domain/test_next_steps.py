"""What is told to try next stands on figures; where there is none, nothing is told."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from service.domain.comparison import Comparison, PhaseComparison
from service.domain.digest import NightFacts
from service.domain.effect import BetweenLoad, Effect
from service.domain.experiment_messages import ExperimentFacts
from service.domain.next_steps import next_steps
from service.domain.prompt_rows import PromptRow
from service.domain.reasons import Reason
from service.domain.speculation import Speculation
from service.domain.status import Outcome

Json = dict[str, Any]


def on(*shares: float) -> Speculation:
    return Speculation(status="on", source="prometheus", per_position_acceptance=list(shares))


def compared(verdict: Any, spec: Speculation | None = None, loads: tuple[int, int] = (1, 1), **changes: Any) -> Comparison:
    between = BetweenLoad.model_validate({"value": 0.015, "from": "assumed", "n": 0})
    effect = Effect(tps_ratio=1.2, ci95=[1.1, 1.3], smallest_detectable=0.04, between_load_sd=between)
    rows = [row("code", 2.0, 3.2), row("maths", 3.0, 2.5)]
    phase = PhaseComparison(
        concurrency=1, verdict=verdict, effect=effect, prompts=rows, output_tps=[60.0, 70.0], loads=list(loads),
        speculation={"baseline": None, "candidate": spec},
    )  # fmt: skip
    base: Json = {
        "baseline": 41, "candidate": 42, "comparable": True, "why_not": [], "verdict": verdict, "bench_phases": [phase],
        "spec_differences": {}, "warnings": [],
    }  # fmt: skip
    return Comparison(**{**base, **changes})


def row(prompt: str, steps: float, even: float) -> PromptRow:
    return PromptRow(
        prompt=prompt, tps=[60.0, 70.0], tps_change=0.1, ttft_ms=[1.0, 1.0], tpot_ms=[1.0, 1.0], tokens_per_step=steps,
        break_even_tokens_per_step=even,
    )  # fmt: skip


def told(*found: ExperimentFacts) -> list[str]:
    return next_steps(NightFacts(["h"], "30 Nov", datetime(2026, 11, 30, tzinfo=UTC), experiments=list(found)))


def done(number: int = 42, **changes: Any) -> ExperimentFacts:
    return ExperimentFacts(id=number, name="x", host="h", created_by="ann", outcome=Outcome.SUCCEEDED, **changes)


def test_a_gain_is_to_be_confirmed_pinned_and_taken_further() -> None:
    assert told(done(comparison=compared("better", on(0.88, 0.77, 0.67)))) == [
        "Confirm 42: one load stands behind a side; `repeat_load: 3` on both would show whether it lasts.",
        "Make it the baseline of what follows: `expctl baseline set 42` (so far it is 41).",
        "42: drafts are accepted at 67 % even at position 3: try a longer draft.",
    ]


def test_a_gain_of_several_loads_needs_no_confirmation_and_a_poor_tail_no_longer_draft() -> None:
    [only] = told(done(comparison=compared("better", on(0.8, 0.3), (3, 3))))
    assert only.startswith("Make it the baseline")


def test_a_loss_names_the_position_from_which_drafts_are_wasted() -> None:
    said = told(done(comparison=compared("worse", on(0.56, 0.31, 0.22, 0.16, 0.13))))
    assert said[0] == "42: only 16 % of drafts are accepted at position 4: try a draft of 3 tokens."
    assert said[1].startswith("42: 1 of 2 prompts stay below break-even (worst: code, 2.00 tokens per step of 3.20)")


@pytest.mark.parametrize("spec", [None, Speculation(status="off"), on(0.1), on(0.9, 0.8)])
def test_a_draft_is_not_shortened_without_a_position_to_shorten_it_to(spec: Speculation | None) -> None:
    assert not any("position" in line for line in told(done(comparison=compared("worse", spec))))


def test_no_difference_says_what_would_show_one() -> None:
    advice = ["this comparison could have shown 4.2 % or more", "repeat_load: 3 on both sides would show 2.4 % or more"]
    assert told(done(comparison=compared("no_difference_shown", advice=advice))) == [f"42: {advice[1]}."]


def test_what_cannot_be_judged_says_why() -> None:
    found = compared("not_comparable", why_not=["the driver differs: 1 and 2"])
    assert told(done(comparison=found)) == ["42 cannot be judged against 41 (the driver differs: 1 and 2): measure both alike."]


@pytest.mark.parametrize(
    ("reason", "again"), [(Reason.KV_CACHE_TOO_SMALL, "submit the changed file"), (Reason.CONNECTION_LOST, "`expctl retry 44`")]
)
def test_failures_are_told_by_cause_with_their_remedy(reason: Reason, again: str) -> None:
    lost = [ExperimentFacts(id=number, name="x", host="h", created_by="a", outcome=Outcome.FAILED, reason=reason) for number in (44, 45)]
    [only] = told(*lost)
    assert only.startswith("44, 45: ")
    assert only.endswith(f"; then {again}.")


def test_a_night_without_anything_has_nothing_to_try() -> None:
    assert told() == []
    assert told(done()) == [], "of a command nothing was measured"
