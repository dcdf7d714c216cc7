"""From the rows of a host and its shift to what the words for them need."""

from __future__ import annotations

from sqlmodel import Session

from service.domain.host_wording import HostMoment
from service.domain.status import ShiftPhase
from service.store import hosts, hostsettings
from service.store.tables import HostRow, utc_now


def host_moment(session: Session, row: HostRow) -> HostMoment:
    """What is known of a host just now."""
    shift = hosts.open_shift(session, row.id or 0)
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
