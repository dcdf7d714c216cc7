"""A host, and threads whose errors reach the test."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from service.store import hosts
from service.store.database import Database


@pytest.fixture
def host(database: Database) -> str:
    """The name of a registered host."""
    with database.write() as session:
        hosts.register(session, "local", "local", {})
    return "local"


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    """Threads to interleave transactions with."""
    with ThreadPoolExecutor(8) as made:
        yield made
