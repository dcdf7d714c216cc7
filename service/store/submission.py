"""Submitting: one experiment or a group, all or nothing, each bound to what it waits for and compares with."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import tzinfo
from graphlib import CycleError, TopologicalSorter
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlmodel import Session, col, select

from service.domain.errors import NotFound, SpecError
from service.domain.events import EventType
from service.domain.hashing import bench_hash, engine_hash, spec_hash
from service.domain.schedule import resolve_not_before
from service.domain.spec import Spec
from service.domain.status import Outcome, Status
from service.store import events, experiments, hosts, notifiers
from service.store.tables import DependencyRow, ExperimentRow, HostRow, utc_now

MAX_ID = 2**31


@dataclass(frozen=True)
class Submitted:
    """One experiment of a submission. `measured_already`: nothing was queued, this one did the same and succeeded."""

    row: ExperimentRow
    measured_already: bool = False


def submit_all(session: Session, specs: list[Spec], created_by: str, *, again: bool = True) -> list[Submitted]:
    """Queue experiments in order. Several are a group with an id of its own. `again=False` offers what was measured before."""
    group_id = secrets.token_hex(6) if len(specs) > 1 else None
    _no_cycles(specs)
    notifiers.check_named(session, list(dict.fromkeys(name for spec in specs for name in spec.notify)))
    made: list[Submitted] = []
    for spec in specs:
        known = None if again else _measured(session, spec)
        made.append(Submitted(known, measured_already=True) if known else Submitted(_insert(session, spec, created_by, group_id)))
    by_name = {one.row.name: one.row for one in made}
    for one, spec in zip(made, specs, strict=True):
        if not one.measured_already:
            _bind(session, one.row, spec, by_name)
    session.flush()
    return made


def submit(session: Session, spec: Spec, created_by: str, *, retry_of: int | None = None) -> ExperimentRow:
    """Queue one experiment."""
    row = _insert(session, spec, created_by, None)
    row.retry_of = retry_of
    _bind(session, row, spec, {})
    session.flush()
    return row


def _measured(session: Session, spec: Spec) -> ExperimentRow | None:
    """The latest success of an identical configuration."""
    query = select(ExperimentRow).where(ExperimentRow.spec_hash == spec_hash(spec), ExperimentRow.outcome == Outcome.SUCCEEDED)
    return session.exec(query.order_by(col(ExperimentRow.id).desc()).limit(1)).one_or_none()


def _insert(session: Session, spec: Spec, created_by: str, group_id: str | None) -> ExperimentRow:
    try:
        host = hosts.by_name(session, spec.host)
    except NotFound as error:
        raise SpecError(error.what, error.why, error.todo) from None
    _suits(host, spec)
    row = ExperimentRow(
        group_id=group_id,
        name=spec.name,
        host_id=host.id or 0,
        created_by=created_by,
        spec=spec.model_dump(mode="json"),
        spec_hash=spec_hash(spec),
        engine_kind=spec.engine.kind,
        engine_hash=engine_hash(spec),
        bench_hash=bench_hash(spec.bench),
        served_model=spec.engine.model_id,
        priority=spec.priority,
        not_before=resolve_not_before(spec.not_before, utc_now(), _zone(host)) if spec.not_before else None,
    )
    session.add(row)
    session.flush()
    row.rank = float(row.id or 0)
    data = {"name": row.name} | ({"group": group_id} if group_id else {})
    events.emit(session, EventType.EXPERIMENT_SUBMITTED, created_by, host=host.name, experiment_id=row.id, data=data)
    return row


def _suits(host: HostRow, spec: Spec) -> None:
    """Say now what the host could only say at night."""
    by_systemd = host.config.get("units") == "systemd"
    if spec.is_command and by_systemd:
        raise SpecError(
            f"engine.kind: a command cannot run on {host.name} yet",
            "its units are kept by systemd",
            "use a host that keeps plain processes",
        )
    from_unit = getattr(spec.engine, "from_unit", None)
    if from_unit is not None and not by_systemd:
        raise SpecError(
            f"engine.from_unit: {from_unit} cannot be forked on {host.name}",
            "its units are plain processes, so there is no unit of systemd to fork",
            f"write engine.model and engine.args instead, or `expctl host add {host.name} --units systemd`",
        )


def _zone(host: HostRow) -> tzinfo:
    """The host's time zone: its setting, else that of the machine the service runs on."""
    name = host.config.get("time_zone")
    if not name:
        return utc_now().astimezone().tzinfo or ZoneInfo("UTC")
    try:
        return ZoneInfo(str(name))
    except (ZoneInfoNotFoundError, ValueError):
        raise SpecError(f"the time zone {name} of host {host.name} is not known", "", "correct the host's setting") from None


def _bind(session: Session, row: ExperimentRow, spec: Spec, group: dict[str, ExperimentRow]) -> None:
    """Turn names into ids: of the same submission first, else the latest of that name."""
    for wanted in spec.after:
        other = _find(session, wanted, group)
        if other is None:
            raise SpecError(f"after: {wanted} does not exist", "there is no experiment of that id or name", "see `expctl queue`")
        if other.id == row.id:
            raise SpecError(f"after: {wanted} is the experiment itself", "it would wait for ever", "name another one")
        if other.status == Status.FINISHED and other.outcome != Outcome.SUCCEEDED:
            raise SpecError(f"after: {wanted} has ended {other.outcome}", "so this experiment could never run", f"retry {other.id} first")
        session.merge(DependencyRow(experiment_id=row.id or 0, after_id=other.id or 0))
    if isinstance(spec.baseline, int):
        if _by_id(session, spec.baseline) is None:
            raise SpecError(f"baseline {spec.baseline} does not exist", "there is no experiment of that id", "give an id or a name")
        row.baseline_id = spec.baseline
    session.add(row)


def _find(session: Session, wanted: int | str, group: dict[str, ExperimentRow]) -> ExperimentRow | None:
    if isinstance(wanted, int):
        return _by_id(session, wanted)
    return group.get(wanted) or experiments.named(session, wanted)


def _by_id(session: Session, experiment_id: int) -> ExperimentRow | None:
    """None also for a number that no database takes for an id."""
    return session.get(ExperimentRow, experiment_id) if 0 < experiment_id < MAX_ID else None


def _no_cycles(specs: list[Spec]) -> None:
    """Names inside one submission may point forward, so they may also point in a circle."""
    names = [spec.name for spec in specs]
    graph = {spec.name: {str(wanted) for wanted in spec.after if wanted in names} for spec in specs}
    for name in names:
        if names.count(name) > 1 and any(name in others for others in graph.values()):
            raise SpecError(f"after: {name} is ambiguous", "the submission has that name twice", "give each its own name")
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise SpecError(
            f"after goes in a circle: {' -> '.join(error.args[1])}", "none of them could ever start", "break the circle"
        ) from None
