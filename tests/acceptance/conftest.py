"""One running embedded service per test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.service import Service
from workers.hosts.local import LocalHost


@pytest.fixture
def environ() -> dict[str, str]:
    """Settings of the service; a module may give others."""
    return {}


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for all tests that are only refused or only read; its host is paused, so that nothing runs."""
    made = Service(tmp_path_factory.mktemp("shared")).start()
    assert made.cli("pause").returncode == 0
    yield made
    made.stop()


@pytest.fixture
def service(tmp_path: Path, environ: dict[str, str]) -> Iterator[Service]:
    """A running embedded service."""
    made = Service(tmp_path, environ=environ).start()
    yield made
    if made.process is not None:
        made.stop()
    for pid in made.children().values():
        os.kill(pid, 9)
    # Engines outlive their service; those of a test that failed half-way must not outlive it.
    host = LocalHost("local", made.data)
    for unit in host.units():
        host.stop_unit(unit.name, grace_s=1)
