"""The API keeps to its own document, whatever it is sent: no 500, no answer that the document does not describe."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance

from service.api.app import create_app
from service.store.database import Database
from tests.acceptance.conftest import Services
from tests.acceptance.service import Service

pytestmark = pytest.mark.costly  # thousands of requests

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


def routes() -> list[tuple[str, str]]:
    """Method and path of every operation. Streams never end by themselves; they have tests of their own."""
    database = Database("sqlite://")
    paths = create_app(database).openapi()["paths"]
    database.close()
    return [(method, path) for path, item in paths.items() for method in item if not path.endswith(("/v1/events", "/logs/stream"))]


@pytest.fixture(scope="session")
def fuzzed(tmp_path_factory: pytest.TempPathFactory, services: Services) -> Iterator[Service]:
    """A service that nobody else uses: what is sent here adds hosts and changes their settings."""
    made = services.start(tmp_path_factory.mktemp("fuzzed"), {"EXPCTL_ONLY_LOCAL": "1"})
    assert made.cli("pause").returncode == 0
    yield made
    services.end(made)


@pytest.mark.parametrize(("method", "path"), routes())
def test_every_route(fuzzed: Service, method: str, path: str) -> None:
    document = schemathesis.openapi.from_url(f"{fuzzed.url}/openapi.json")
    operation = document[path][method.upper()]

    @given(case=operation.as_strategy())
    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    def probe(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=CHECKS)

    probe()
