"""What every room's tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.store import migrate
from service.store.database import Database


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the person who runs the tests leaks in."""
    for name in list(os.environ):
        if name.startswith("EXPCTL_") and name != "EXPCTL_LAB_DIR":
            monkeypatch.delenv(name)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """A migrated database of the test's own."""
    made = Database(f"sqlite:///{tmp_path / 'expctl.db'}")
    migrate.upgrade(made)
    yield made
    made.close()
