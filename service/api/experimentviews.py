"""From experiments' rows to what is shown of them: what several share (host, night, what they wait for) is read once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from sqlmodel import Session

from service.api.moments import host_moment, waits_for_host
from service.api.schemas import ExperimentDetail, ExperimentOut, step_out
from service.domain.host_wording import HostMoment
from service.domain.loads import load_label
from service.domain.masking import LooksMask
from service.domain.night import Slot
from service.domain.reasons import RULES, Reason
from service.domain.status import ACTIVE, Outcome, Status, StepName
from service.domain.wording import not_before_text, status_text, where_text
from service.store import foresight, hosts, waiting, workers
from service.store.forecast import Night
from service.store.tables import ExperimentRow, HostRow, StepRow, utc_now

FORESEEN = ("eta", "eta_p90", "starts_at", "eta_text")
"""Fields that a look at the host's whole queue gives."""


def experiments_out(session: Session, rows: Sequence[ExperimentRow], *, foresee: bool = True) -> list[ExperimentOut]:
    """Experiments' rows as shown. `foresee=False` leaves out when they run: see `with_eta`."""
    look = _Look(session, rows, foresee=foresee)
    return [ExperimentOut(**look.fields(row)) for row in rows]


def experiment_out(session: Session, row: ExperimentRow) -> ExperimentOut:
    """An experiment's row as shown."""
    return experiments_out(session, [row])[0]


def experiment_detail(session: Session, row: ExperimentRow, steps: list[StepRow]) -> ExperimentDetail:
    """An experiment's row with its steps."""
    return ExperimentDetail(**_Look(session, [row]).fields(row), steps=[step_out(step) for step in steps])


def with_eta(session: Session, shown: Sequence[ExperimentOut]) -> list[ExperimentOut]:
    """The same with when they run, as foreseen now."""
    names = {one.host for one in shown if one.status != Status.FINISHED}
    nights = {name: foresight.night(session, hosts.by_name(session, name), utc_now()) for name in names}
    return [one.model_copy(update=_foreseen(nights[one.host], one.id)) if one.host in nights else one for one in shown]


def _foreseen(night: Night | None, experiment_id: int) -> dict[str, Any]:
    slot = night.slot(experiment_id) if night else None
    if night is None or slot is None:
        return dict.fromkeys(FORESEEN) | {"eta_text": ""}
    known = not slot.at_least or slot.id != night.active
    return {
        "eta": slot.ends_at if known else None,
        "eta_p90": slot.ends_p90 if known else None,
        "starts_at": slot.starts_at if slot.id != night.active else None,
        "eta_text": night.text_of(experiment_id),
    }


SAME = tuple(name for name in ExperimentOut.model_fields if hasattr(ExperimentRow, name))
"""What is shown as it stands in the row."""


@lru_cache(maxsize=1024)
def _masked(spec: str) -> Any:
    """A spec, as JSON, without what looks like a secret. Nobody changes it: a page shows the same ones again and again."""
    return LooksMask(())(json.loads(spec))


class _Look:
    """What is known of the hosts of some experiments, and of what these wait for."""

    def __init__(self, session: Session, rows: Iterable[ExperimentRow], *, foresee: bool = True) -> None:
        self._session = session
        rows = list(rows)
        self._now = utc_now()
        self._hosts = {row.id or 0: row for row in hosts.every(session)}
        self._after = waiting.after(session, [row.id or 0 for row in rows])
        live = {row.host_id for row in rows if row.status in {Status.QUEUED, *ACTIVE}}
        self._attended = {one for one in live if hosts.attended(session, one)}
        self._quiet = workers.quiet(session) if live else {}
        waits = {row.host_id for row in rows if row.status == Status.QUEUED}
        self._moments: dict[int, HostMoment] = {one: host_moment(session, self._hosts[one]) for one in waits}
        self._nights: dict[int, Night] = {one: foresight.night(session, self._hosts[one], self._now) for one in live} if foresee else {}
        self._places = {} if foresee else {one: waiting.places(session, one) for one in waits}

    def fields(self, row: ExperimentRow) -> dict[str, Any]:
        """Everything that is shown of an experiment."""
        status = Status(row.status)
        rule = RULES[Reason(row.reason)] if row.reason else None
        attended = status not in ACTIVE or row.host_id in self._attended
        quiet_s = self._quiet.get(row.host_id, 0.0) if status in ACTIVE else 0.0
        waits = status in {Status.QUEUED, Status.HELD}
        same = {name: getattr(row, name) for name in SAME}
        return (
            same
            | {
                "host": self._host(row).name,
                "status": status,
                "reason_class": rule.reason_class if rule else None,
                "remedy": rule.remedy if rule else None,
                "status_text": status_text(
                    status, row.step, row.outcome, row.reason, row.spec["engine"]["kind"], attended=attended, quiet_s=quiet_s
                ),
                "where_text": self._waits(row) if waits else where_text(status, row.step, row.progress, 0, row.detail),
                "loads": row.spec.get("repeat_load", 1),
                "load_text": load_label(row.load, row.spec.get("repeat_load", 1), row.recheck_of),
                "after": sorted(self._after.get(row.id or 0, ())),
                "events_url": f"/v1/experiments/{row.id}/events",
                "progress": row.progress | self._load_eta(row),
                "spec": _masked(json.dumps(row.spec)),
            }
            | _foreseen(self._nights.get(row.host_id), row.id or 0)
        )

    def _load_eta(self, row: ExperimentRow) -> dict[str, Any]:
        """What is left of a load, as its events tell it, but by now; empty where nothing loads."""
        night = self._nights.get(row.host_id)
        if night is None or night.active != row.id or row.step != StepName.LOAD:
            return {}
        return {"eta": night.left.load_json(row.progress) if night.left else None}

    def _host(self, row: ExperimentRow) -> HostRow:
        return self._hosts[row.host_id]

    def _waits(self, row: ExperimentRow) -> str:
        """What a queued experiment waits for, the longest wait first."""
        if row.status == Status.HELD:
            return row.held_because or ""
        unmet = [one for one, outcome in sorted(self._after.get(row.id or 0, {}).items()) if outcome != Outcome.SUCCEEDED]
        if unmet:
            return f"after {', '.join(map(str, unmet))}"
        if row.not_before is not None and row.not_before > self._now:
            return not_before_text(row.not_before.astimezone(), self._now.astimezone())
        held_up = waits_for_host(self._host(row), self._moments[row.host_id], row, self._slot(row))
        return held_up or where_text(Status.QUEUED, None, {}, self._ahead(row), "")

    def _slot(self, row: ExperimentRow) -> Slot | None:
        night = self._nights.get(row.host_id)
        return night.slot(row.id or 0) if night else None

    def _ahead(self, row: ExperimentRow) -> int:
        night = self._nights.get(row.host_id)
        return night.ahead(row.id or 0) if night else self._places[row.host_id].get(row.id or 0, 0)
