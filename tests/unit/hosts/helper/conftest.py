"""Made-up hosts for the helper."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.hosts.helper.box import NOBODY, Box, Inside, usable_interpreter


@pytest.fixture
def box() -> Iterator[Box]:
    """The helper as a program. Its test mode is not for root, so under root it runs as nobody."""
    owner = NOBODY if os.geteuid() == 0 else None
    interpreter = usable_interpreter(owner)
    if interpreter is None:
        pytest.skip("no Python here that an unprivileged user may run")
    folder = tempfile.mkdtemp(prefix="expctl-host-")  # pytest's own folder is closed to other users
    made = Box(Path(folder), interpreter, owner)
    made.give_all()
    yield made
    made.end()
    shutil.rmtree(folder)


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Inside]:
    """The helper's modules with a clock of the test's own, as whoever runs the tests."""
    interpreter = usable_interpreter(None)
    assert interpreter is not None
    made = Box(tmp_path, interpreter, None)
    yield Inside(made)
    made.end()
