"""A baseline loaded once more after its candidates (A-B-A): which one is meant, whether it can be, and what it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlmodel import Session

from service.domain.errors import Conflict, SpecError
from service.domain.spec import Spec
from service.store import experiments, loads
from service.store.tables import BaselineRow, ExperimentRow

Rows = list[ExperimentRow]

UNLOADABLE = frozenset({"endpoint", "command"})
"""Kinds that nothing is loaded for."""


@dataclass(frozen=True)
class Recheck:
    """A baseline to be loaded once more."""

    base: ExperimentRow
    spec: Spec
    candidates: Rows
    """Every load that it comes after."""


def wanted(session: Session, specs: Sequence[Spec], rows: Sequence[Rows], by_name: dict[str, Rows]) -> list[Recheck]:
    """One for each baseline that a submission asks to see again, after all candidates that have it.

    `rows`: the loads of each spec. SpecError where a baseline is not known, or loading it again would say nothing.
    """
    names = [spec.name for spec in specs]
    asked: dict[int, tuple[ExperimentRow, list[Spec], Rows]] = {}
    for spec, candidates in zip(specs, rows, strict=True):
        if not spec.recheck_baseline:
            continue
        if spec.baseline is not None and names.count(str(spec.baseline)) > 1:
            raise _refused(f"baseline {spec.baseline} is ambiguous", "the submission has that name twice", "give each its own name")
        base = _baseline(session, spec, candidates[0], by_name)
        _must_tell_drift(session, base, spec, candidates[0])
        for one in candidates:
            one.baseline_id = base.id
            session.add(one)
        _, theirs, found = asked.setdefault(loads.first_of(base), (base, [], []))
        theirs.append(spec)
        found += candidates
    return [Recheck(base, _spec(base, theirs), found) for base, theirs, found in asked.values()]


def known(session: Session, wanted: Recheck) -> ExperimentRow | None:
    """One that was queued before for all of these candidates, and has not failed."""
    found = loads.rechecks(session, wanted.base, wanted.candidates)
    ids = {one.id for one in wanted.candidates}
    return next((row for row in found[::-1] if loads.may_succeed(row) and ids <= _ids(loads.waited_for(session, row))), None)


def still_to_follow(session: Session, row: ExperimentRow) -> Rows:
    """What a recheck that is tried again comes after: its candidates, or who was queued in their place."""
    found = {one.id: one for old in loads.waited_for(session, row) for one in loads.current(session, old) if loads.may_succeed(one)}
    if not found:
        why = "none of the experiments that it comes after has succeeded"
        raise Conflict(f"experiment {row.id} would have nothing to tell", why, "retry one of those first")
    return list(found.values())


def _ids(rows: Rows) -> set[int | None]:
    return {row.id for row in rows}


def _baseline(session: Session, spec: Spec, candidate: ExperimentRow, by_name: dict[str, Rows]) -> ExperimentRow:
    """The one of the same submission, else by id, else the latest success of that name, else the pinned one."""
    named = spec.baseline
    if isinstance(named, str) and named in by_name:
        return by_name[named][0]
    if isinstance(named, int):
        found = experiments.by_id(session, named)
    elif named is not None:
        found = experiments.named(session, named, succeeded=True) or experiments.named(session, named)
    else:
        pinned = session.get(BaselineRow, (candidate.host_id, candidate.served_model))
        found = experiments.get(session, pinned.experiment_id) if pinned else None
        if found is None:
            model = candidate.served_model or "this model"
            why = f"the experiment names none, and none is pinned for {model} on {spec.host}"
            raise _refused("there is no baseline", why, "write `baseline:` with an id or a name, or `expctl baseline set ID`")
    if found is None:
        raise _refused(f"baseline {named} does not exist", "there is no experiment of that id or name", "see `expctl queue`")
    return found


def _must_tell_drift(session: Session, base: ExperimentRow, spec: Spec, candidate: ExperimentRow) -> None:
    """Loading the baseline again takes as long as loading it once: refuse what could not be compared in the end."""
    which = f"baseline {base.id} ({base.name})"
    if loads.first_of(base) == loads.first_of(candidate):
        raise _refused(f"{which} is the experiment itself", "it would be compared with itself", "name another one, or write repeat_load")
    if base.spec["engine"]["kind"] in UNLOADABLE:
        raise _refused(f"{which} cannot be loaded again", f"its engine.kind is {base.spec['engine']['kind']}", "name one that expctl loads")
    if base.host_id != candidate.host_id:
        there = experiments.host_name(session, base)
        raise _refused(f"{which} ran on host {there}", f"this experiment runs on {spec.host}", "name a baseline of the same host")
    if base.bench_hash != candidate.bench_hash:
        raise _refused(f"{which} measures something else", "its `bench` differs, so the two do not compare", "give both the same `bench`")
    if not any(loads.may_succeed(one) for one in loads.current(session, base)):
        raise _refused(f"{which} has ended {base.outcome}", "so there is nothing to see drift against", f"retry {base.id} first")


def _refused(what: str, why: str, todo: str) -> SpecError:
    return SpecError(f"recheck_baseline: {what}", why, todo)


def _spec(base: ExperimentRow, candidates: Sequence[Spec]) -> Spec:
    """The baseline's configuration, in the candidates' place in the queue, told to whom they are told."""
    return Spec.model_validate(base.spec).model_copy(
        update={
            "repeat_load": 1,
            "recheck_baseline": False,
            "baseline": None,
            "after": [],
            "not_before": None,
            "priority": min(spec.priority for spec in candidates),
            "notify": list(dict.fromkeys(name for spec in candidates for name in spec.notify)),
        }
    )
