"""`expctl up` gives every host a worker, also one that is added while it runs, unless it is told not to."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.service import Service, wait_for

pytestmark = pytest.mark.usefixtures("_sqlite")


@pytest.fixture
def _sqlite() -> None:
    """On one database: what is told here is told by processes, and the roster reads one table."""


@pytest.fixture
def up(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Service]:
    made = Service(tmp_path, environ=getattr(request, "param", {})).start()
    yield made
    made.end()


def workers(service: Service) -> set[str]:
    """The hosts whose workers live."""
    found: list[dict[str, Any]] = json.loads(service.api("/readyz"))["workers"]
    return {one["host"] for one in found}


def added(service: Service, *words: str) -> subprocess.CompletedProcess[str]:
    done = service.cli("host", "add", *words)
    assert done.returncode == 0, done.stderr
    return done


def test_a_host_that_is_added_gets_its_worker(up: Service) -> None:
    wait_for(lambda: workers(up) == {"local"})
    added(up, "second")
    wait_for(lambda: workers(up) == {"local", "second"}, 20)
    checked = up.cli("host", "check", "second")
    assert "worker" not in checked.stderr, checked.stderr
    up.stop()
    assert not up.children()
    up.start()
    wait_for(lambda: workers(up) == {"local", "second"}, 20)


@pytest.mark.parametrize("up", [{"EXPCTL_ONLY_LOCAL": "1"}], indirect=True)
def test_with_only_local_the_others_have_theirs_elsewhere(up: Service) -> None:
    added(up, "second")
    wait_for(lambda: workers(up) == {"local"})
    asked = up.cli("host", "check", "second", "--timeout", "6s")
    assert asked.returncode != 0
    assert workers(up) == {"local"}
