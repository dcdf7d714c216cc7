from __future__ import annotations

from pathlib import Path

import pytest

from service.store import hosts
from service.store.database import Database
from tests.integration.workers.night import Night, install


@pytest.fixture(autouse=True)
def _local(database: Database) -> None:
    with database.write() as session:
        hosts.register(session, "local", "local", {})


@pytest.fixture
def night(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Night:
    made = Night(database, tmp_path)
    install(made, monkeypatch)
    return made
