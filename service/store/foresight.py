"""Nights that were foreseen, kept by the process that shows them: many look, and little happens in between."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, func
from sqlmodel import Session, select

from service.store import events, forecast, history
from service.store.forecast import Night
from service.store.history import Config, Estimate
from service.store.tables import DurationRow, HostRow

FRESH_S = 2.0
"""How long a night that was foreseen may be shown again: what runs comes nearer to its end."""


def night(session: Session, row: HostRow, now: datetime) -> Night:
    """A host's night, foreseen once for all who look within two seconds while nothing happens.

    Only for sessions that read: what a writer sees may be undone, and is looked up anew.
    """
    bind = session.get_bind()
    if bind.get_execution_options().get("expctl_write"):
        return forecast.of_host(session, row, now)
    return _MEMORIES.setdefault(bind, _Memory()).night(session, row, now)


@dataclass
class _Memory:
    """Of one database. Rows of both tables are only ever added, by one writer at a time, so the latest id tells what is there."""

    nights: dict[int, tuple[int, Night]] = field(default_factory=dict)
    """By host, with the latest event when it was foreseen: whatever changes a queue or ends a part writes one."""
    estimates: tuple[int, dict[int, dict[Config, Estimate | None]]] = field(default_factory=lambda: (0, {}))
    """The latest duration that they are of; by host; None where there is no history."""

    def night(self, session: Session, row: HostRow, now: datetime) -> Night:
        latest, host_id = events.latest(session), row.id or 0
        known = self.nights.get(host_id)
        if known is None or known[0] != latest or not 0 <= (now - known[1].now).total_seconds() < FRESH_S:
            known = self.nights[host_id] = latest, forecast.of_host(session, row, now, self._estimates)
        return known[1]

    def _estimates(self, session: Session, host_id: int, configs: Collection[Config]) -> dict[Config, Estimate]:
        latest = session.exec(select(func.max(DurationRow.id))).one() or 0
        kept = self.estimates
        if kept[0] != latest:
            kept = self.estimates = latest, {}
        # Another thread may have come further meanwhile; what is looked up here belongs to what was taken here.
        known = kept[1].setdefault(host_id, {})
        missing = set(configs) - known.keys()
        if missing:
            found = history.estimates(session, host_id, missing)
            known.update({config: found.get(config) for config in missing})
        return {config: estimate for config in configs if (estimate := known[config]) is not None}


_MEMORIES: WeakKeyDictionary[Engine | Connection, _Memory] = WeakKeyDictionary()
