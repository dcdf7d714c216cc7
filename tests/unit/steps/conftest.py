from __future__ import annotations

import pytest

from tests.unit.steps.stage import Stage


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def endpoint() -> Stage:
    made = Stage()
    made.engine.owns_process = False
    return made
