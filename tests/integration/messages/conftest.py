from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from service.store import hosts
from service.store.database import Database
from tests.integration.messages.night import Night
from tests.integration.messages.receiver import Receiver


@pytest.fixture
def night(database: Database) -> Night:
    with database.write() as session:
        hosts.register(session, "local", "local", {})
    return Night(database)


@pytest.fixture
def receivers() -> Iterator[Callable[[], Receiver]]:
    """Makes receivers that are closed at the end."""
    made: list[Receiver] = []

    def make() -> Receiver:
        made.append(Receiver())
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def receiver(receivers: Callable[[], Receiver]) -> Receiver:
    return receivers()
