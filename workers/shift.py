"""One host's stretch of work: claim the host, run what is due, hand the host back."""

from __future__ import annotations

import threading
import traceback
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog
from sqlalchemy.exc import SQLAlchemyError

from service.domain.engine_spec import EndpointEngine
from service.domain.errors import ClaimLost, UsageError
from service.domain.reasons import Reason
from service.domain.spec import Spec
from service.domain.status import Outcome
from service.store import experiments, hosts, shifts
from service.store.database import Database
from service.store.hosts import HEARTBEAT_S, LEASE_S, Lease
from service.store.tables import ExperimentRow
from workers.clock import SystemClock
from workers.engines.base import Engine, HostDefaults
from workers.engines.registry import make_engine
from workers.heart import Heart
from workers.hosts.base import HostError
from workers.hosts.registry import make_host
from workers.masking import Mask
from workers.recorder import StoreRecorder
from workers.runner import Ending, run
from workers.steps.base import HandOver, StepContext
from workers.unitname import unit_name

log = structlog.get_logger()

MOST_RECOVERIES = 20
"""An experiment that takes its worker down each time must not do so for ever."""


@dataclass(frozen=True)
class Worker:
    """Who works, on what, and how it is asked to go."""

    database: Database
    owner: str
    data_dir: Path
    environ: dict[str, str] = field(repr=False)
    stop: threading.Event
    lease_s: float = LEASE_S
    heartbeat_s: float = HEARTBEAT_S


def run_shift(worker: Worker, host: str) -> bool:
    """Run everything that is due on a host. False where another worker holds it.

    Leaves early, units running, when asked to stop or when the claim is lost.
    """
    with worker.database.write() as session:
        lease = hosts.claim(session, host, worker.owner, worker.lease_s)
    if lease is None:
        return False
    try:
        with Heart(worker.database, lease, every_s=worker.heartbeat_s, lease_s=worker.lease_s) as heart:
            _work(worker, lease, heart)
    except HandOver:
        log.info("handing over", host=host)
    finally:
        with worker.database.write() as session:
            hosts.release(session, lease)
    return True


def _work(worker: Worker, lease: Lease, heart: Heart) -> None:
    with worker.database.write() as session:
        shift = shifts.open_or_resume(session, lease)
    while not worker.stop.is_set():
        heart.tick()
        with worker.database.write() as session:
            taken = experiments.take_next(session, lease, shift.id or 0)
        if taken is None:
            with worker.database.write() as session:
                shifts.close(session, lease, shift.id or 0, "nothing left to do")
            return
        row, adopted = taken
        log.info("adopting" if adopted else "taking", host=lease.host, experiment=row.id)
        _one(worker, lease, heart, row)


def _one(worker: Worker, lease: Lease, heart: Heart, row: ExperimentRow) -> None:
    """One experiment from here to its end."""
    mask = Mask(_secrets(worker, row))
    recorder = StoreRecorder(worker.database, lease, heart, worker.stop, row.id or 0, row.attempt, mask)
    try:
        if row.recoveries > MOST_RECOVERIES:
            _stop_unit_of(worker, lease, row, recorder)
            ending = Ending(Outcome.FAILED, Reason.INTERNAL_ERROR, f"its worker was lost {row.recoveries} times; it is not tried again")
        else:
            ending = run(_context(worker, lease, row, recorder), recorder)
    except UsageError as error:
        ending = Ending(Outcome.FAILED, Reason.BAD_ARGUMENTS, str(error), error.what)
        _stop_unit_of(worker, lease, row, recorder)
    except (HandOver, ClaimLost, SQLAlchemyError):
        # Not this experiment's fault: it is adopted by whoever holds the host next.
        raise
    except Exception as error:
        # Our own mistake ends this experiment, not the night.
        log.exception("unexpected error", experiment=row.id)
        where = traceback.extract_tb(error.__traceback__)[-1]
        ending = Ending(
            Outcome.FAILED, Reason.INTERNAL_ERROR, f"{type(error).__name__}: {error}", f"{Path(where.filename).name}:{where.lineno}"
        )
        _stop_unit_of(worker, lease, row, recorder)
    shown = replace(ending, detail=mask.text(ending.detail), evidence=mask.text(ending.evidence))
    _write_ending(worker, lease, row, shown)


def _secrets(worker: Worker, row: ExperimentRow) -> list[str]:
    """What the spec refers to and must never show: today the API key."""
    reference = str(row.spec.get("engine", {}).get("api_key") or "")
    found = worker.environ.get(reference.removeprefix("env:")) if reference else None
    return [found] if found else []


def _write_ending(worker: Worker, lease: Lease, row: ExperimentRow, ending: Ending) -> None:
    log.info("ended", experiment=row.id, outcome=ending.outcome, reason=ending.reason, detail=ending.detail)
    with worker.database.write() as session:
        if (
            ending.outcome == Outcome.FAILED
            and ending.reason
            and experiments.requeue(session, lease, row.id or 0, ending.reason, ending.detail)
        ):
            return
        experiments.finish(session, lease, row.id or 0, ending.outcome, ending.reason, ending.detail, ending.evidence)


def _context(worker: Worker, lease: Lease, row: ExperimentRow, recorder: StoreRecorder) -> StepContext:
    spec = Spec.model_validate(row.spec)
    with worker.database.read() as session:
        config = hosts.by_name(session, lease.host).config
    defaults = HostDefaults(experiment_port=int(config.get("experiment_port", 8001)), executables=dict(config.get("executables", {})))
    engine = make_engine(spec, defaults, worker.environ)
    launch = engine.launch()
    port = launch.port if launch else 0
    return StepContext(
        experiment_id=row.id or 0,
        spec=spec,
        unit=unit_name(row.id or 0, spec.name),
        port=port,
        address=_address(spec, engine, port, config.get("engine_address")),
        host=make_host(lease.host, config, worker.data_dir),
        engine=engine,
        recorder=recorder,
        clock=SystemClock(worker.stop),
    )


def _address(spec: Spec, engine: Engine, port: int, engine_address: str | None) -> str:
    if isinstance(spec.engine, EndpointEngine) or not engine.owns_process:
        return str(getattr(spec.engine, "base_url", ""))
    return f"{engine_address or 'http://127.0.0.1'}:{port}"


def _stop_unit_of(worker: Worker, lease: Lease, row: ExperimentRow, recorder: StoreRecorder) -> None:
    """Stop what an experiment left running, unless somebody else has the host by now: then it is theirs."""
    recorder.confirm()
    with worker.database.read() as session:
        config = hosts.by_name(session, lease.host).config
    try:
        make_host(lease.host, config, worker.data_dir).stop_unit(unit_name(row.id or 0, row.name))
    except HostError as error:
        log.warning("the unit could not be stopped", experiment=row.id, why=str(error))
