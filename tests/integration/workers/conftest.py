from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from service.store import hosts
from service.store.database import Database
from tests.integration.workers.night import Night, install
from tests.integration.workers.parking import ANSWERED, PROD, ParkingHost, configure
from tests.integration.workers.recording import Hands, Rig
from workers import serving
from workers.reaching import Reach


@pytest.fixture(autouse=True)
def _local(database: Database) -> None:
    with database.write() as session:
        hosts.register(session, "local", "local", {})


@pytest.fixture
def night(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Night:
    made = Night(database, tmp_path)
    install(made, monkeypatch)
    return made


@pytest.fixture
def evening(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Night:
    made = Night(database, tmp_path)
    made.host = ParkingHost("local")
    install(made, monkeypatch)
    monkeypatch.setattr(Reach, "impatient", lambda _self: made.host)
    monkeypatch.setattr(serving, "probe", lambda *_: ANSWERED)
    made.host.serve(PROD)
    configure(database)
    return made


@pytest.fixture
def rig(database: Database) -> Rig:
    return Rig(database)


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    made = Hands()
    monkeypatch.setattr("workers.recorder.time", SimpleNamespace(monotonic=made.monotonic))
    return made
