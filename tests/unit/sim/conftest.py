from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.sim.simulated import SimServer


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., SimServer]]:
    """Starts simulated engines that end with the test. Without other knobs: the fast profile, no load time."""
    started: list[SimServer] = []

    def start(*flags: str, env: dict[str, str] | None = None, **knobs: str) -> SimServer:
        started.append(SimServer(tmp_path, "--served-model-name=m", *flags, env=env, **knobs))
        return started[-1]

    yield start
    for server in started:
        server.close()
