from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from expctl import globals as command_globals
from tests.unit.cli.fake_service import FakeService, serving


@pytest.fixture(autouse=True)
def _fresh_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in vars(command_globals.Options()).items():
        monkeypatch.setattr(command_globals.options, name, value)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeService]:
    """A service that answers what the test says, and that `expctl` finds."""
    service = FakeService()
    server = serving(service)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("EXPCTL_SERVER", service.url)
    yield service
    service.over.set()
    server.shutdown()
    server.server_close()
    thread.join()
