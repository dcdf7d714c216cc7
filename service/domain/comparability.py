"""An arm of a comparison, and whether two of them may be compared at all."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import Field

from service.domain.fairness import CACHE_UNKNOWN, RESTARTED, sentences
from service.domain.masking import LooksMask
from service.domain.measurement import PhaseResult
from service.domain.reasons import RULES
from service.domain.records import Record
from service.domain.spec import FIVE_IDS

OLD = timedelta(days=14)
"""A baseline older than this warns."""

_LISTED = 3
_NOT_MEASURED = frozenset({"name", "baseline", "priority", "after", "not_before", "notify", "repeat_load", "recheck_baseline"})
"""Keys of a spec that change nothing measured."""


class Arm(Record):
    """One side of a comparison: an experiment, what it ran on, and what each of its loads measured."""

    experiment: int
    name: str
    host: str
    gpus: list[str] | None = None
    """Uuids, or names where no uuid is known; None where not even those are."""
    served_model: str | None = None
    bench_hash: str
    driver: str | None = None
    engine_version: str | None = None
    measured_at: datetime | None = None
    spec: dict[str, Any] = Field(default_factory=dict)
    loads: list[list[PhaseResult]]
    """A list of bench phases a load of this configuration."""
    recheck: list[list[PhaseResult]] = Field(default_factory=list)
    """Of a baseline: loads measured after the candidate (A-B-A). They count like the others, and show whether the host drifted."""
    experiments: list[int] = Field(default_factory=list)
    """The experiment of each load, those of `recheck` last."""
    left_out: list[str] = Field(default_factory=list)
    """Loads of this configuration that do not count, and why."""
    ngram_family: str | None = None
    """Which of vLLM's n-gram proposers ran: legacy, numba, gpu_v1, gpu_v2."""
    valid: bool = True
    invalid_reason: str | None = None


def all_loads(arm: Arm) -> list[list[PhaseResult]]:
    """Every load of an arm, those measured after the candidate last."""
    return [*arm.loads, *arm.recheck]


def prompt_order(arm: Arm) -> list[str]:
    """The prompts' ids as the experiment file gives them; empty where the spec does not say."""
    prompts = arm.spec.get("bench", {}).get("prompts", [])
    return list(FIVE_IDS) if prompts == "five" else [str(prompt["id"]) for prompt in prompts]


def why_not_comparable(base: Arm, candidate: Arm) -> list[str]:
    """A sentence for each thing that must be the same and is not. What is unknown is no difference; `doubts` says so."""
    pairs = [
        ("the host differs", base.host, candidate.host),
        ("the GPUs differ", _gpus(base), _gpus(candidate)),
        ("the served model differs", base.served_model, candidate.served_model),
        ("the driver differs", base.driver, candidate.driver),
    ]
    result = [f"{what}: {old} and {new}" for what, old, new in pairs if old and new and old != new]
    if base.bench_hash != candidate.bench_hash:
        result.append(_bench_differs(base, candidate))
    return result


def _gpus(arm: Arm) -> str:
    return ", ".join(sorted(arm.gpus or []))


def _bench_differs(base: Arm, candidate: Arm) -> str:
    ours = {path: pair for path, pair in spec_differences(base.spec, candidate.spec).items() if path.startswith("bench.")}
    ours = {path: pair for path, pair in ours.items() if path not in {"bench.repeat", "bench.warmup"}}
    listed = ", ".join(f"{path} {_short(old)} and {_short(new)}" for path, (old, new) in list(ours.items())[:_LISTED])
    return f"the benchmark differs: {listed}" if listed else "the benchmark differs: other prompts, limits or client version"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:39] + "…"  # noqa: PLR2004


def faults(base: Arm, candidate: Arm) -> list[str]:
    """Why the figures of an arm may not be believed: one failed request is enough."""
    result = []
    for side, arm in (("baseline", base), ("candidate", candidate)):
        if not arm.valid:
            result.append(f"the {side} is invalid: {arm.invalid_reason or 'no reason recorded'}")
        loads = all_loads(arm)
        failed = [request for phases in loads for phase in phases for request in phase.requests if not request.ok]
        if failed:
            reasons = ", ".join(sorted({str(request.reason or "no reason recorded") for request in failed}))
            result.append(f"{len(failed)} request{'s' if len(failed) > 1 else ''} of the {side} failed: {reasons}")
        elif arm.valid and (spoilt := [phase for phases in loads for phase in phases if not phase.summary.valid]):
            why = next((RULES[phase.summary.invalid_reason].sentence for phase in spoilt if phase.summary.invalid_reason), None)
            result.append(f"the {side} has a bench phase that does not count" + (f": {why}" if why else ""))
        if not any(loads):
            result.append(f"the {side} has no measurement")
        elif len({phases[0].concurrency if phases else None for phases in loads}) > 1:
            result.append(f"the loads of the {side} measured different bench phases")
    firsts = [arm.loads[0][0].concurrency for arm in (base, candidate) if arm.loads and arm.loads[0]]
    if len(set(firsts)) > 1:
        result.append(f"the first bench phases differ: concurrency {firsts[0]} and {firsts[1]}")
    return result


def doubts(base: Arm, candidate: Arm, now: datetime | None) -> list[str]:
    """What does not forbid the comparison but should be known beside it."""
    result = [f"of the {side}, {sentence}" for side, arm in (("baseline", base), ("candidate", candidate)) for sentence in arm.left_out]
    for what, old, new in (
        ("GPUs", base.gpus, candidate.gpus),
        ("driver", base.driver, candidate.driver),
        ("served model", base.served_model, candidate.served_model),
        ("engine version", base.engine_version, candidate.engine_version),
    ):
        sides = [side for side, value in (("baseline", old), ("candidate", new)) if not value]
        if sides:
            result.append(f"{what} of the {' and the '.join(sides)} not known: taken as the same, not shown to be")
    if base.engine_version and candidate.engine_version and base.engine_version != candidate.engine_version:
        result.append(f"the engine versions differ: {base.engine_version} and {candidate.engine_version}")
    return result + _unfair("baseline", base) + _unfair("candidate", candidate) + _age(base, candidate, now)


def _unfair(side: str, arm: Arm) -> list[str]:
    """What else happened while a side was measured. That its server was restarted is a fault, and told as one."""
    result = []
    for phase in (phase for phases in all_loads(arm) for phase in phases):
        found = phase.summary.conditions
        telling = None if found is None else found.model_dump(include={"prefix_cache_hit_rate", "foreign_tokens", "warnings"})
        if telling is not None:
            telling["warnings"] = [name for name in telling["warnings"] if name not in {RESTARTED, CACHE_UNKNOWN}]
        result += [f"the {side} at concurrency {phase.concurrency}: {sentence}" for sentence in sentences(telling)]
    return result


def _age(base: Arm, candidate: Arm, now: datetime | None) -> list[str]:
    """Days between the baseline and the candidate, or `now` where it is later."""
    if base.measured_at is None:
        return ["when the baseline was measured is not known"]
    until = [_aware(moment) for moment in (candidate.measured_at, now) if moment is not None]
    age = max(until, default=_aware(base.measured_at)) - _aware(base.measured_at)
    return [f"the baseline is {age.days} days old; measure it again"] if age > OLD else []


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def spec_differences(base: Mapping[str, Any], candidate: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Dotted path to [baseline, candidate] where two specs differ; what is not written counts as null."""
    old, new = _flat(base), _flat(candidate)
    paths = [path for path in dict.fromkeys([*old, *new]) if path.split(".")[0] not in _NOT_MEASURED]
    hide = LooksMask(())
    shown = _flat(hide(base)), _flat(hide(candidate))
    return {path: [one.get(path) for one in shown] for path in paths if old.get(path) != new.get(path)}


def spec_equalities(base: Mapping[str, Any], candidate: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted path to the value that two specs share. What is written in neither is left out, and so is what changes nothing measured."""
    old, new = _flat(base), _flat(candidate)
    shown = _flat(LooksMask(())(base))
    written = [path for path, value in old.items() if value is not None and path.split(".")[0] not in _NOT_MEASURED]
    return {path: shown[path] for path in written if new.get(path) == old[path]}


def _flat(value: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, item in value.items():
        path = f"{above}{key}"
        if isinstance(item, Mapping):
            result.update(_flat(item, f"{path}."))
        else:
            result[path] = item
    return result
