"""Loads of one configuration: how many experiments a submission makes, and how each is called."""

from __future__ import annotations

from collections.abc import Sequence

from service.domain.spec import Spec


def rechecks(specs: Sequence[Spec]) -> int:
    """How many baselines are loaded once more: one for all candidates of a submission that have the same."""
    asked = [spec for spec in specs if spec.recheck_baseline]
    return len({(spec.host, spec.baseline, None if spec.baseline else spec.engine.model_id) for spec in asked})


def experiments(specs: Sequence[Spec]) -> int:
    """How many experiments a submission makes."""
    return sum(spec.repeat_load for spec in specs) + rechecks(specs)


def planned(specs: Sequence[Spec]) -> str:
    """Such as `3 loads + 1 baseline recheck`."""
    return counted(sum(spec.repeat_load for spec in specs), rechecks(specs))


def counted(loads: int, again: int) -> str:
    """The same from the two numbers."""
    words = [f"{loads} load{'' if loads == 1 else 's'}"]
    return " + ".join(words + ([f"{again} baseline recheck{'' if again == 1 else 's'}"] if again else []))


def load_label(load: int, loads: int, recheck_of: int | None) -> str:
    """What tells experiments of the same name apart: `load 2 of 3`, `baseline 4 again`; empty where there is one load only."""
    if recheck_of is not None:
        return f"baseline {recheck_of} again"
    return f"load {load} of {loads}" if loads > 1 else ""
