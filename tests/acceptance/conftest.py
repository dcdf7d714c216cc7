"""Running embedded services. Starting one costs seconds, so tests that leave it healthy share it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.service import Service
from workers.hosts.local import LocalHost

Pool = dict[tuple[tuple[str, str], ...], Service]


def end(service: Service) -> None:
    """Stop a service, whatever a test has left of it, and the engines that would outlive it."""
    if service.process is not None:
        service.stop()
    for pid in service.children().values():
        os.kill(pid, 9)
    host = LocalHost("local", service.data)
    for unit in host.units():
        host.stop_unit(unit.name, grace_s=1)


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """Services that run, by their settings."""
    running: Pool = {}
    yield running
    for service in running.values():
        end(service)


@pytest.fixture
def environ() -> dict[str, str]:
    """Settings of the service; a module may give others."""
    return {}


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory, environ: dict[str, str], pool: Pool) -> Iterator[Service]:
    """A running embedded service with an idle host. It has a past: what earlier tests submitted has finished."""
    key = tuple(sorted(environ.items()))
    made = pool.pop(key, None) or Service(tmp_path_factory.mktemp("service"), environ=environ).start()
    yield made
    if made.settled() and "EXPCTL_DATABASE_URL" not in environ:
        pool[key] = made
    else:
        end(made)


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Service]:
    """A running embedded service without a past."""
    made = Service(tmp_path).start()
    yield made
    end(made)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for all tests that are only refused or only read; its host is paused, so that nothing runs."""
    made = Service(tmp_path_factory.mktemp("shared")).start()
    assert made.cli("pause").returncode == 0
    yield made
    end(made)
