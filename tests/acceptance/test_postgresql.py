"""What only PostgreSQL has: a server, whose connections can be lost."""

from __future__ import annotations

import pytest

from tests.acceptance.service import Service, steps
from tests.databases import PostgresServer

pytestmark = pytest.mark.parametrize("services", ["postgresql"], indirect=True)  # SQLite is a file


def test_the_service_survives_the_loss_of_every_connection(service: Service, postgres: PostgresServer) -> None:
    assert service.database_url.startswith("postgresql://")
    one = service.submit(service.file("kept", LOAD_SECONDS="3"))
    service.at_step(one, "load")
    pid = steps(service.show(one))["launch"]["evidence"]["pid"]
    postgres.disconnect(service.database_url.partition("?")[0].rpartition("/")[2])
    item = service.ended(one)
    assert (item["outcome"], item["attempt"], steps(item)["launch"]["evidence"]["pid"]) == ("succeeded", 1, pid)
    assert not (service.data / "expctl.db").exists()
