"""A host that serves by day, in memory, and what its shifts left in the store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlmodel import select

from service.domain.events import EventType
from service.store import agenda, events, hosts
from service.store.database import Database
from service.store.tables import ShiftRow
from tests.integration.workers.night import Night
from workers.engines.base import Readiness
from workers.hosts.base import UnitState
from workers.hosts.fake_production import FakeProductionHost

PROD = "vllm-prod.service"
ANSWERED = Readiness(True, detail="m answered", models=("m",), token="ok")  # noqa: S106 - what the model said


def window(*, open_now: bool) -> str:
    """Two hours that contain this minute, or that are far from it."""
    start = datetime.now(UTC) + timedelta(hours=-1 if open_now else 6)
    return f"{start:%H:%M}-{start + timedelta(hours=2):%H:%M}"


class ParkingHost(FakeProductionHost):
    """Every unit of ours listens at once, and a command has ended at once."""

    def start_unit(self, definition: Any) -> UnitState:
        super().start_unit(definition)
        if definition.once is not None:
            self.end(definition.name, exit_status=0)
        else:
            self.listen(definition.name, 8001)
        return self.unit(definition.name)


def configure(database: Database, **changes: Any) -> None:
    config = {"units": "systemd", "park": [PROD], "window": window(open_now=True), "close_after": 0.05, **changes}
    with database.write() as session:
        hosts.register(session, "local", "local", config)


def told(database: Database) -> list[EventType]:
    wanted = ("shift.", "production.", "host.", "experiment.started", "experiment.finished", "experiment.requeued")
    with database.read() as session:
        return [event.type for event in events.since(session) if event.type.startswith(wanted)]


def due(database: Database) -> bool:
    with database.read() as session:
        return agenda.of(session, "local", datetime.now(UTC)).anything


def serving_units(night: Night) -> list[str]:
    return [name for name, state in night.host.states.items() if state.phase == "active"]


def closings(database: Database) -> list[str | None]:
    with database.read() as session:
        return [row.closing for row in session.exec(select(ShiftRow).order_by(ShiftRow.id)).all()]  # type: ignore[arg-type]
