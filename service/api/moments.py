"""From the rows of a host and its shift to what the words for them need."""

from __future__ import annotations

from sqlmodel import Session

from service.domain.host_wording import HostMoment, does_not_fit, waits_for_window
from service.domain.night import Slot
from service.domain.status import ShiftPhase
from service.store import hosts, hostsettings, shifts
from service.store.tables import ExperimentRow, HostRow, utc_now


def host_moment(session: Session, row: HostRow) -> HostMoment:
    """What is known of a host just now."""
    shift = shifts.current(session, row.id or 0)
    return HostMoment(
        name=row.name,
        config=hostsettings.config_of(row),
        now=utc_now().astimezone(),
        phase=ShiftPhase(shift.phase) if shift else None,
        opened_at=shift.opened_at if shift else None,
        parked=shift.parked if shift else {},
        open_by=row.open_by,
        give_back_by=row.give_back_by,
        unreachable_since=row.unreachable_since,
        silent=row.lease_token is not None and not hosts.attended(session, row.id or 0),
    )


def waits_for_host(host: HostRow, moment: HostMoment, row: ExperimentRow, slot: Slot | None) -> str | None:
    """Why a queued experiment that is due does not start on its host; None where only others are before it.

    `slot`: when it is foreseen to run, as far as anything is.
    """
    if host.paused:
        return f"{host.name} is paused"
    if host.blocked:
        return f"{host.name} is blocked: {host.blocked}"
    if row.spec["engine"]["kind"] == "endpoint":
        return None  # it measures what serves already, so nothing has to be parked
    shut = waits_for_window(moment)
    late = shut is None and slot is not None and slot.refused is not None
    return does_not_fit(moment) if late else shut
