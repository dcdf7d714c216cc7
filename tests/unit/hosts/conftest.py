"""Helpers for tests with real processes: wait for a condition, and leave nothing running."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from workers.hosts.base import UnitDefinition
from workers.hosts.local import LocalHost


def wait_until(condition: Callable[[], object], within_s: float = 20.0) -> None:
    """Look again and again; fail loudly when it never comes true."""
    deadline = time.monotonic() + within_s
    tick = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        tick.wait(0.02)


@pytest.fixture(name="wait_until")
def _wait_until() -> Callable[..., None]:
    return wait_until


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LocalHost]:
    made = LocalHost("here", tmp_path, nvidia_smi="no-such-nvidia-smi", devices=tmp_path)
    yield made
    units = tmp_path / "units"
    for entry in units.iterdir() if units.is_dir() else ():
        made.stop_unit(entry.name, grace_s=0.0)


@pytest.fixture
def python() -> Callable[..., UnitDefinition]:
    """A unit that runs a piece of Python."""

    def make(code: str, name: str = "expctl-1-test", **env: str) -> UnitDefinition:
        return UnitDefinition(name, (sys.executable, "-u", "-S", "-c", code), env)

    return make
