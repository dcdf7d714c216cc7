"""From experiments' rows to the two sides of a comparison: every load of each configuration, and the baseline's after the candidate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlmodel import Session

from service.domain.comparability import Arm
from service.domain.errors import NotReady
from service.domain.loads import load_label
from service.domain.measurement import PhaseResult
from service.domain.reasons import RULES, Reason
from service.domain.status import Outcome, Status
from service.store import experiments, loads, results
from service.store.tables import ExperimentRow

Rows = list[ExperimentRow]


class Arms:
    """Sides of comparisons; what was measured is read once, however many candidates a baseline has."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._read: dict[int | None, list[PhaseResult]] = {}

    def pair(self, base: ExperimentRow, candidate: ExperimentRow) -> tuple[Arm, Arm]:
        """Baseline and candidate, each with all loads of its configuration that count. NotReady while nothing was measured whole.

        Two loads of one configuration are compared as they are, one with the other.
        """
        if loads.first_of(base) == loads.first_of(candidate):
            return self._side(base, [base]), self._side(candidate, [candidate])
        theirs = loads.together(self._session, candidate)
        again = loads.rechecks(self._session, base, theirs)
        right = self._side(candidate, theirs)
        ended = min((row.finished_at for row in theirs if row.id in right.experiments and row.finished_at), default=None)
        rows = [*loads.together(self._session, base), *again]
        after = {row.id for row in rows if ended is not None and row.started_at is not None and row.started_at >= ended}
        return self._side(base, rows, after), right

    def _side(self, named: ExperimentRow, rows: Rows, after: Iterable[int | None] = ()) -> Arm:
        """The loads that succeeded as one arm; where none did, the named experiment with what is wrong with it."""
        usable = [row for row in rows if row.outcome == Outcome.SUCCEEDED and self._phases(row)]
        first = named if named in usable or not usable else usable[0]
        counted = [row for row in usable if not _difference(row, first)] or [named]
        before = [row for row in counted if row.id not in set(after)] or counted
        later = [row for row in counted if row not in before]
        arm = self._arm(named, first)
        return arm.model_copy(
            update={
                "loads": [self._phases(row) for row in before],
                "recheck": [self._phases(row) for row in later],
                "experiments": [row.id for row in (*before, *later)],
                "measured_at": max((row.finished_at for row in counted if row.finished_at), default=None),
                "left_out": list(_left_out(rows, counted, first)),
            }
        )

    def _phases(self, row: ExperimentRow) -> list[PhaseResult]:
        if row.id not in self._read:
            self._read[row.id] = results.phases(self._session, row.id or 0, row.attempt)
        return self._read[row.id]

    def _arm(self, named: ExperimentRow, row: ExperimentRow) -> Arm:
        if row.status != Status.FINISHED or not self._phases(row):
            why = "it has not finished" if row.status != Status.FINISHED else "nothing was measured"
            raise NotReady(f"experiment {row.id} has nothing to compare", why, f"see `expctl show {row.id}`")
        gpus = row.facts.get("gpus")
        valid = row.outcome == Outcome.SUCCEEDED
        return Arm(
            experiment=named.id or 0,
            name=row.name,
            host=experiments.host_name(self._session, row),
            gpus=[] if row.facts.get("no_gpus") else [str(gpu["uuid"]) for gpu in gpus] if gpus else None,
            served_model=row.facts.get("served_model") or row.served_model,
            bench_hash=row.bench_hash,
            driver="none" if row.facts.get("no_gpus") else row.facts.get("driver"),
            engine_version=row.facts.get("engine_version"),
            ngram_family=row.facts.get("ngram_family"),
            measured_at=row.finished_at,
            spec=row.spec,
            loads=[],
            valid=valid,
            invalid_reason=None if valid or not row.reason else f"{RULES[Reason(row.reason)].sentence}: {row.detail}",
        )


def _ran_on(row: ExperimentRow) -> dict[str, str]:
    """What has to be the same for two loads to be loads of the same; empty where it is not known."""
    facts = row.facts
    gpus = sorted(str(gpu.get("uuid") or "") for gpu in facts.get("gpus") or ())
    shown = {"driver": facts.get("driver"), "engine version": facts.get("engine_version"), "served model": facts.get("served_model")}
    return {"GPUs": ", ".join(gpus), **{name: str(value or "") for name, value in shown.items()}}


def _left_out(rows: Rows, counted: Rows, first: ExperimentRow) -> Iterator[str]:
    """Each load that does not count, and why; not those that were tried again."""
    latest = {(loads.first_of(row), row.load): row for row in rows}
    for row in latest.values():
        if row in counted:
            continue
        label = load_label(row.load, row.spec.get("repeat_load", 1), row.recheck_of)
        what = f"{label} (experiment {row.id})" if label else f"experiment {row.id}"
        if row.status != Status.FINISHED:
            yield f"{what} has not finished: it is not in this comparison yet"
        elif row.outcome != Outcome.SUCCEEDED:
            why = f": {RULES[Reason(row.reason)].sentence}" if row.reason else ""
            yield f"{what} did not succeed{why}; it is left out"
        else:
            yield f"{what} is left out: {_difference(row, first) or 'nothing was measured'}"


def _difference(row: ExperimentRow, first: ExperimentRow) -> str:
    """In what a load ran on something else, in words; empty where nothing is known to differ."""
    here, there = _ran_on(row), _ran_on(first)
    found = (name for name in here if here[name] and there[name] and here[name] != there[name])
    return next((f"the {name} differs: {there[name]} and {here[name]}" for name in found), "")
