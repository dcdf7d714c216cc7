"""One experiment on a claimed host: from its row to its ending."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import structlog
from sqlalchemy.exc import SQLAlchemyError

from service.domain.engine_spec import EndpointEngine
from service.domain.errors import ClaimLost, UsageError
from service.domain.host_config import HostConfig
from service.domain.masking import LooksMask, secrets_of
from service.domain.reasons import Reason
from service.domain.spec import Spec
from service.domain.status import Outcome
from service.store import experiments
from service.store.hosts import Lease
from service.store.tables import ExperimentRow
from workers.clock import SystemClock
from workers.curfew import Curfew
from workers.engines.base import Engine, HostDefaults
from workers.engines.registry import make_engine
from workers.firstlook import FirstLook, Looks, defaults_of, next_that_can_only_fail, preflight_of, secrets_named
from workers.heart import Heart
from workers.hosts.base import Host, HostError
from workers.hosts.commandof import command_of
from workers.reaching import Reach, forked_unit
from workers.recorder import StoreRecorder
from workers.runner import Ending, run
from workers.steps.base import HandOver, StepContext
from workers.unitname import unit_name
from workers.worker import Worker

log = structlog.get_logger()

MOST_RECOVERIES = 20
"""An experiment that takes its worker down each time must not do so for ever."""


@dataclass(frozen=True)
class Bench:
    """Where experiments are run: a claimed host, and who claims it."""

    worker: Worker
    lease: Lease
    heart: Heart
    config: HostConfig
    reach: Reach
    curfew: Curfew
    looks: Looks = field(default_factory=Looks)

    def work(self, row: ExperimentRow) -> Ending | None:
        """Take one experiment from here to its end. None where it was queued again."""
        with structlog.contextvars.bound_contextvars(host=self.lease.host, experiment=row.id, step=row.step):
            return self._work(row)

    def _work(self, row: ExperimentRow) -> Ending | None:
        mask = LooksMask(self._secrets(row))
        recorder = StoreRecorder(
            self.worker.database, self.lease, self.heart, self.worker.stop, row.id or 0, row.attempt, mask, curfew=self.curfew
        )
        host = self.reach.host(recorder.check_claim, self.config.dead_man + 120)
        try:
            ending = self._run(row, host, recorder, mask)
        except (HandOver, ClaimLost, SQLAlchemyError):
            # Not this experiment's fault: it is adopted by whoever holds the host next.
            raise
        except Exception as error:  # noqa: BLE001 - it becomes the ending of this experiment
            ending = _ended_by(error, row)
            self._stop_unit_of(row, host, recorder)
        shown = replace(ending, detail=mask.text(ending.detail), evidence=mask.text(ending.evidence))
        return None if self._write_ending(row, shown) else shown

    def refuse_next(self, shift_id: int) -> tuple[ExperimentRow, Ending] | None:
        """End an experiment of this night before production is parked for it, where it could only fail. None where none is left."""
        look = FirstLook(self.reach.impatient(), self.config, self.worker.environ, self.worker.data_dir)
        found = next_that_can_only_fail(self.worker.database, self.lease, shift_id, look, self.looks)
        if found is None or found[1].refusal is None:
            return None
        row, refusal = found[0], found[1].refusal
        ending = Ending(Outcome.FAILED, refusal.reason, found[1].detail, refusal.evidence)
        self._write_ending(row, ending)
        return row, ending

    def _run(self, row: ExperimentRow, host: Host, recorder: StoreRecorder, mask: LooksMask) -> Ending:
        if row.recoveries <= MOST_RECOVERIES:
            return run(self._context(row, host, recorder, mask), recorder)
        self._stop_unit_of(row, host, recorder)
        return Ending(Outcome.FAILED, Reason.INTERNAL_ERROR, f"its worker was lost {row.recoveries} times; it is not tried again")

    def _secrets(self, row: ExperimentRow) -> list[str]:
        """What the spec has or refers to, and what must never be shown."""
        engine = row.spec.get("engine", {})
        env = {str(name): str(value) for name, value in (engine.get("env") or {}).items()}
        references = [value for value in (str(engine.get("api_key") or ""), *env.values()) if value.startswith("env:")]
        found = [self.worker.environ.get(reference.removeprefix("env:")) for reference in references]
        return [*(one for one in found if one), *secrets_of(env)]

    def _write_ending(self, row: ExperimentRow, ending: Ending) -> bool:
        """Whether it was queued again."""
        log.info("ended", experiment=row.id, outcome=ending.outcome, reason=ending.reason, detail=ending.detail)
        with self.worker.database.write() as session:
            if (
                ending.outcome == Outcome.FAILED
                and ending.reason
                and experiments.requeue(session, self.lease, row.id or 0, ending.reason, ending.detail)
            ):
                return True
            experiments.finish(session, self.lease, row.id or 0, ending.outcome, ending.reason, ending.detail, ending.evidence)
        return False

    def _context(self, row: ExperimentRow, host: Host, recorder: StoreRecorder, mask: LooksMask) -> StepContext:
        spec = Spec.model_validate(row.spec)
        source = forked_unit(spec, host)
        if source is not None:
            mask.learn(secrets_of(source.variables))
            # The same experiment file may fork another unit tomorrow.
            recorder.facts({"forked": {"unit": source.name, "sha256": source.sha256}})
        engine = make_engine(spec, self._defaults(), self.worker.environ, None if source is None else command_of(source))
        launch = engine.launch()
        port = launch.port if launch else 0
        preflight = preflight_of(host, self.config, self.worker.data_dir, secrets_named(spec, self.worker.environ))
        return StepContext(
            experiment_id=row.id or 0,
            spec=spec,
            unit=unit_name(row.id or 0, spec.name),
            port=port,
            address=self._address(spec, engine, port),
            host=host,
            engine=engine,
            recorder=recorder,
            clock=SystemClock(self.worker.stop),
            production=tuple(self.config.park),
            run_as=host.run_as if self.config.units == "systemd" else None,
            preflight=lambda: preflight.of(spec, engine),
        )

    def _defaults(self) -> HostDefaults:
        own = urlsplit(self.reach.address).hostname or ""
        return replace(defaults_of(self.config), endpoints=replace(self.worker.endpoints, own=own))

    def _address(self, spec: Spec, engine: Engine, port: int) -> str:
        if isinstance(spec.engine, EndpointEngine) or not engine.owns_process:
            return str(getattr(spec.engine, "base_url", ""))
        return f"{self.reach.address}:{port}"

    def _stop_unit_of(self, row: ExperimentRow, host: Host, recorder: StoreRecorder) -> None:
        """Stop what an experiment left running, unless somebody else has the host by now: then it is theirs."""
        recorder.confirm()
        try:
            host.stop_unit(unit_name(row.id or 0, row.name))
        except HostError as error:
            log.warning("the unit could not be stopped", experiment=row.id, why=str(error))


def _ended_by(error: Exception, row: ExperimentRow) -> Ending:
    """What an error means that came before the steps, or from ourselves. Our own mistake ends this experiment, not the night."""
    if isinstance(error, UsageError):
        return Ending(Outcome.FAILED, Reason.BAD_ARGUMENTS, str(error), error.what)
    if isinstance(error, HostError):
        return Ending(Outcome.FAILED, Reason(error.reason), error.evidence, error.evidence)
    log.error("unexpected error", experiment=row.id, exc_info=error)
    where = traceback.extract_tb(error.__traceback__)[-1]
    return Ending(Outcome.FAILED, Reason.INTERNAL_ERROR, f"{type(error).__name__}: {error}", f"{Path(where.filename).name}:{where.lineno}")
