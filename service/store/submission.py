"""Submitting: one experiment or a group, all or nothing, each bound to what it waits for and compares with."""

from __future__ import annotations

import secrets
from collections import defaultdict
from dataclasses import dataclass
from datetime import tzinfo
from graphlib import CycleError, TopologicalSorter
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlmodel import Session, col, select

from service.domain import loads as planned
from service.domain.errors import Conflict, NotFound, SpecError
from service.domain.events import EventType
from service.domain.hashing import bench_hash, engine_hash, spec_hash
from service.domain.schedule import resolve_not_before
from service.domain.spec import Spec
from service.domain.status import Outcome
from service.store import events, experiments, hosts, loads, notifiers, rechecks
from service.store.tables import DependencyRow, ExperimentRow, HostRow, utc_now

LOOKED_AT = 200
"""Earlier successes of a configuration that are looked through for loads of one submission."""


@dataclass(frozen=True)
class Submitted:
    """One experiment of a submission. `measured_already`: nothing was queued, this one did the same before."""

    row: ExperimentRow
    measured_already: bool = False


def submit_all(session: Session, specs: list[Spec], created_by: str, *, again: bool = True) -> list[Submitted]:
    """Queue experiments in order, one for each load; then the baselines that are loaded once more.

    Several are a group with an id of its own. `again=False` offers what was measured before.
    """
    group_id = secrets.token_hex(6) if planned.experiments(specs) > 1 else None
    _no_cycles(specs)
    notifiers.check_named(session, list(dict.fromkeys(name for spec in specs for name in spec.notify)))
    made: list[list[Submitted]] = []
    for spec in specs:
        known = [] if again else _measured(session, spec)
        earlier = [Submitted(row, measured_already=True) for row in known]
        made.append(earlier or [Submitted(row) for row in _loads(session, spec, created_by, group_id)])
    by_name = {spec.name: [one.row for one in loaded] for spec, loaded in zip(specs, made, strict=True)}
    for spec, loaded in zip(specs, made, strict=True):
        for one in loaded:
            if not one.measured_already:
                _bind(session, one.row, spec, by_name)
    wanted = rechecks.wanted(session, specs, [[one.row for one in loaded] for loaded in made], by_name)
    last = [_recheck(session, one, created_by, group_id, again=again) for one in wanted]
    session.flush()
    return [one for loaded in (*made, last) for one in loaded]


def submit(session: Session, spec: Spec, created_by: str) -> ExperimentRow:
    """Queue one load of one experiment."""
    row = _insert(session, spec, created_by, None)
    _bind(session, row, spec, {})
    session.flush()
    return row


def retry(session: Session, row: ExperimentRow, created_by: str) -> ExperimentRow:
    """Queue the same again, that load alone. One that did not succeed is replaced among its configuration's loads."""
    awaited = _waited_for(session, row) if row.recheck_of is None else []
    changes: dict[str, Any] = {"not_before": None}
    replaced = row.outcome != Outcome.SUCCEEDED
    if not replaced:
        # A load that succeeded counts where it is; this is another measurement, not one load more of the same.
        changes |= {"repeat_load": 1, "recheck_baseline": False}
    spec = Spec.model_validate(row.spec).model_copy(update=changes)
    made = _insert(session, spec, created_by, row.group_id if replaced else None)
    made.retry_of, made.baseline_id, made.recheck_of = row.id, row.baseline_id, row.recheck_of
    if replaced:
        made.load, made.load_of = row.load, loads.first_of(row)
    session.add(made)
    if row.recheck_of is not None:
        awaited = rechecks.still_to_follow(session, row)
    _wait(session, made, awaited)
    session.flush()
    return made


def _waited_for(session: Session, row: ExperimentRow) -> list[ExperimentRow]:
    """What an experiment waits for; where that did not succeed, its latest retry. Conflict where that cannot succeed either."""
    found = []
    for after_id in session.exec(select(DependencyRow.after_id).where(DependencyRow.experiment_id == row.id)):
        other = experiments.get(session, after_id)
        while not loads.may_succeed(other):
            again = select(ExperimentRow).where(ExperimentRow.retry_of == other.id).order_by(col(ExperimentRow.id).desc()).limit(1)
            retried = session.exec(again).one_or_none()
            if retried is None:
                why = f"it comes after {other.id} {other.name}, which has ended {other.outcome}"
                raise Conflict(f"experiment {row.id} could never run", why, f"retry {other.id} first")
            other = retried
        found.append(other)
    return found


def _measured(session: Session, spec: Spec) -> list[ExperimentRow]:
    """The latest loads of an identical configuration that succeeded, where one submission had as many as are asked for.

    A command measures nothing: whoever submits it again wants what it does.
    """
    if spec.engine.kind == "command":
        return []
    same = (ExperimentRow.spec_hash == spec_hash(spec), ExperimentRow.outcome == Outcome.SUCCEEDED, col(ExperimentRow.recheck_of).is_(None))
    rows = session.exec(select(ExperimentRow).where(*same).order_by(col(ExperimentRow.id).desc()).limit(LOOKED_AT))
    together: dict[int, list[ExperimentRow]] = defaultdict(list)
    for row in rows:
        found = together[loads.first_of(row)]
        found.append(row)
        if len(found) == spec.repeat_load:
            return found[::-1]
    return []


def _loads(session: Session, spec: Spec, created_by: str, group_id: str | None) -> list[ExperimentRow]:
    """A new experiment for each load."""
    rows = [_insert(session, spec, created_by, group_id) for _ in range(spec.repeat_load)]
    for number, row in enumerate(rows, 1):
        row.load, row.load_of = number, rows[0].id if number > 1 else None
    return rows


def _recheck(session: Session, wanted: rechecks.Recheck, created_by: str, group_id: str | None, *, again: bool) -> Submitted:
    """A baseline once more, after its candidates; the earlier one where nothing has changed since."""
    known = None if again else rechecks.known(session, wanted)
    if known is not None:
        return Submitted(known, measured_already=True)
    row = _insert(session, wanted.spec, created_by, group_id)
    row.recheck_of = row.baseline_id = loads.first_of(wanted.base)
    _wait(session, row, wanted.candidates)
    session.add(row)
    return Submitted(row)


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


def _bind(session: Session, row: ExperimentRow, spec: Spec, group: dict[str, list[ExperimentRow]]) -> None:
    """Turn names into ids: of the same submission first, else the latest of that name. A name means every load of it."""
    for wanted in spec.after:
        others = _find(session, wanted, group)
        if not others:
            raise SpecError(f"after: {wanted} does not exist", "there is no experiment of that id or name", "see `expctl queue`")
        for other in others:
            if loads.first_of(other) == loads.first_of(row):
                raise SpecError(f"after: {wanted} is the experiment itself", "it would wait for ever", "name another one")
            if not loads.may_succeed(other):
                why = f"after: {wanted} has ended {other.outcome}"
                raise SpecError(why, "so this experiment could never run", f"retry {other.id} first")
        _wait(session, row, others)
    if isinstance(spec.baseline, int):
        if experiments.by_id(session, spec.baseline) is None:
            raise SpecError(f"baseline {spec.baseline} does not exist", "there is no experiment of that id", "give an id or a name")
        row.baseline_id = spec.baseline
    session.add(row)


def _wait(session: Session, row: ExperimentRow, others: list[ExperimentRow]) -> None:
    for other in others:
        session.merge(DependencyRow(experiment_id=row.id or 0, after_id=other.id or 0))


def _find(session: Session, wanted: int | str, group: dict[str, list[ExperimentRow]]) -> list[ExperimentRow]:
    if isinstance(wanted, str) and wanted in group:
        return group[wanted]
    if isinstance(wanted, int):
        row = experiments.by_id(session, wanted)
        return [row] if row else []
    row = experiments.named(session, wanted)
    return loads.current(session, row) if row else []


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
