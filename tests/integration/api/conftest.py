from __future__ import annotations

import pytest

from service.store import hosts
from service.store.database import Database
from tests.integration.api.service import Api


@pytest.fixture
def api(database: Database) -> Api:
    with database.write() as session:
        hosts.register(session, "local", "local", {"simulated": True})
    return Api(database)
