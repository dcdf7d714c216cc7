"""The settings of a host: adding one, changing one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlmodel import Session, select

from service.domain import host_change
from service.domain.errors import Conflict
from service.domain.events import EventType
from service.domain.host_config import HostConfig
from service.store import events, shifts
from service.store.tables import HostRow


def config_of(row: HostRow) -> HostConfig:
    """A host's settings with their defaults."""
    return HostConfig.model_validate(row.config)


def save(session: Session, name: str, given: Mapping[str, Any], actor: str) -> tuple[HostRow, bool]:
    """Add a host, or change those of its settings that are given; True where it is new.

    Conflict where a shift is open and has in hand what would change.
    """
    row = session.exec(select(HostRow).where(HostRow.name == name)).one_or_none()
    if row is None:
        config = host_change.changed({}, given)
        row = HostRow(name=host_change.check_name(name))
        _write(session, row, config)
        events.emit(session, EventType.HOST_ADDED, actor, host=name)
        return row, True
    config = host_change.changed(row.config, given)
    differing = host_change.differing(row.config, config)
    if differing:
        _refuse_in_a_shift(session, row, host_change.locked(row.config, config))
        if host_change.locked(row.config, config):
            row.report = {}  # it told of another host, or of other units
        _write(session, row, config)
        # The names only: a hook may hold what is nobody else's business.
        events.emit(session, EventType.HOST_CHANGED, actor, host=name, data={"settings": differing})
    return row, False


def _write(session: Session, row: HostRow, config: HostConfig) -> None:
    row.transport = "ssh" if config.ssh else "local"
    row.config = config.model_dump(mode="json")
    session.add(row)
    session.flush()


def _refuse_in_a_shift(session: Session, row: HostRow, locked: list[str]) -> None:
    if not locked or shifts.current(session, row.id or 0) is None:
        return
    raise Conflict(
        f"{', '.join(locked)} of {row.name} cannot change now",
        "a shift is open there, and it needs them as they were to bring production back and to find what runs",
        f"wait until it has closed, or end it: expctl host give-back {row.name}",
    )
