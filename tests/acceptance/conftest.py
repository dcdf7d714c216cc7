"""One running embedded service per test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.service import Service


@pytest.fixture
def environ() -> dict[str, str]:
    """Settings of the service; a module may give others."""
    return {}


@pytest.fixture
def service(tmp_path: Path, environ: dict[str, str]) -> Iterator[Service]:
    """A running embedded service."""
    made = Service(tmp_path, environ=environ).start()
    yield made
    if made.process is not None:
        made.stop()
    for pid in made.children().values():
        os.kill(pid, 9)
