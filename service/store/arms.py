"""From an experiment's rows to one side of a comparison."""

from __future__ import annotations

from sqlmodel import Session

from service.domain.comparability import Arm
from service.domain.errors import NotReady
from service.domain.reasons import RULES, Reason
from service.domain.status import Outcome, Status
from service.store import experiments, results
from service.store.tables import ExperimentRow


def arm(session: Session, row: ExperimentRow) -> Arm:
    """What is known of one measured experiment. NotReady while nothing was measured whole."""
    phases = results.phases(session, row.id or 0, row.attempt)
    if row.status != Status.FINISHED or not phases:
        why = "it has not finished" if row.status != Status.FINISHED else "nothing was measured"
        raise NotReady(f"experiment {row.id} has nothing to compare", why, f"see `expctl show {row.id}`")
    gpus = row.facts.get("gpus")
    valid = row.outcome == Outcome.SUCCEEDED
    return Arm(
        experiment=row.id or 0,
        name=row.name,
        host=experiments.host_name(session, row),
        gpus=[] if row.facts.get("no_gpus") else [str(gpu["uuid"]) for gpu in gpus] if gpus else None,
        served_model=row.facts.get("served_model") or row.served_model,
        bench_hash=row.bench_hash,
        driver="none" if row.facts.get("no_gpus") else row.facts.get("driver"),
        engine_version=row.facts.get("engine_version"),
        ngram_family=row.facts.get("ngram_family"),
        measured_at=row.finished_at,
        spec=row.spec,
        loads=[phases],
        valid=valid,
        invalid_reason=None if valid or not row.reason else f"{RULES[Reason(row.reason)].sentence}: {row.detail}",
    )
