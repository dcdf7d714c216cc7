"""An experiment looked at before anything is started or parked for it: what the worker does that a dry run asks for."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from service.domain.errors import UsageError
from service.domain.host_config import HostConfig
from service.domain.reasons import RULES, Reason, ReasonClass
from service.domain.spec import Spec
from service.store import agenda, experiments, hosts
from service.store.database import Database
from service.store.hosts import Lease
from service.store.tables import ExperimentRow, utc_now
from workers.engines.base import HostDefaults
from workers.engines.registry import make_engine
from workers.hosts.base import Host, HostError
from workers.hosts.commandof import command_of
from workers.preflight.examine import Preflight, refused
from workers.preflight.findings import Finding, Report
from workers.reaching import forked_unit


@dataclass(frozen=True)
class FirstLook:
    """Where experiments are looked at: a host, its settings, and what the worker has around it."""

    host: Host
    config: HostConfig
    environ: Mapping[str, str] = field(repr=False)
    data_dir: Path

    def of(self, spec: Spec) -> Report:
        """What is found. Nothing is raised: what cannot be looked at is part of it."""
        try:
            source = forked_unit(spec, self.host)
            base = None if source is None else command_of(source)
            engine = make_engine(spec, defaults_of(self.config), self.environ, base)
        except (UsageError, HostError) as error:
            return refused(error)
        return preflight_of(self.host, self.config, self.data_dir, secrets_named(spec, self.environ)).of(spec, engine)


def preflight_of(host: Host, config: HostConfig, data_dir: Path, secrets: tuple[str, ...]) -> Preflight:
    """The look at one host."""
    return Preflight(host, tuple(config.park), frozenset(config.executables.values()), data_dir, secrets)


def defaults_of(config: HostConfig) -> HostDefaults:
    """What the host's row gives where an experiment is silent."""
    return HostDefaults(experiment_port=config.experiment_port, executables=dict(config.executables))


def secrets_named(spec: Spec, environ: Mapping[str, str]) -> tuple[str, ...]:
    """What an experiment refers to and must never show: its API key."""
    reference = str(getattr(spec.engine, "api_key", None) or "")
    found = environ.get(reference.removeprefix("env:")) if reference else None
    return (found,) if found else ()


def _of_its_own(refusal: Finding) -> bool:
    """Not the host's, as a full disk is: that would cost an experiment after the other, where parking stops at the first."""
    reason = refusal.reason
    return reason == Reason.EXEC_FAILED or (reason is not None and RULES[reason].reason_class == ReasonClass.CONFIG)


LOOKS_S = 60.0
"""How long all looks of a shift may take together before production is parked; the next experiment has its look in any case."""


@dataclass
class Looks:
    """What a shift has looked at before it parks production."""

    fine: set[int] = field(default_factory=set)
    """Experiments that may be worth it."""
    until: float | None = None

    def time_left(self) -> bool:
        """Whether one more may be looked at."""
        now = time.monotonic()
        self.until = now + LOOKS_S if self.until is None else self.until
        return now < self.until


def next_that_can_only_fail(
    database: Database, lease: Lease, shift_id: int, look: FirstLook, looks: Looks
) -> tuple[ExperimentRow, Report] | None:
    """The next experiment of this night, taken, that could only fail; None where it may be worth to park production for those left.

    Those behind a command are looked at when it is their turn: it may make what they need.
    """
    with database.read() as session:
        ids = agenda.tonight(session, hosts.by_name(session, lease.host), utc_now())
    for number in ids:
        if not looks.time_left() and number != ids[0]:
            return None
        with database.read() as session:
            spec = Spec.model_validate(experiments.get(session, number).spec)
        if number not in looks.fine:
            report = look.of(spec)
            if report.refusal is not None and _of_its_own(report.refusal):
                return _taken(database, lease, shift_id, number, report)
            looks.fine.add(number)
        if spec.is_command:
            return None
    return None


def _taken(database: Database, lease: Lease, shift_id: int, number: int, report: Report) -> tuple[ExperimentRow, Report] | None:
    with database.write() as session:
        taken = experiments.take_next(session, lease, shift_id, guests=False, among=[number])
    return None if taken is None or taken[0].id != number else (taken[0], report)
