"""Headers that every answer has."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.api.app import create_app
from service.api.headers import ALWAYS
from service.domain.access import Scope
from service.settings import Settings
from service.store import hosts, migrate
from service.store.database import Database
from tests.integration.api.team import Team


@pytest.fixture
def team(tmp_path: Path) -> Team:
    """What the headers are does not hang on the database."""
    database = Database(f"sqlite:///{tmp_path / 'expctl.db'}")
    migrate.upgrade(database)
    made = Team(database)
    made.give("ann", Scope.ADMIN)
    return made


def test_every_answer_has_them(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [
        team.of("ann", "GET", "/v1/hosts"),
        team.get("/v1/hosts"),
        team.get("/nothing"),
        team.of("ann", "GET", "/v1/hosts/none"),
        team.of("ann", "POST", "/v1/tokens", {"odd": 1}),
        team.ask("POST", "/v1/experiments", content=b"x" * (9 << 20)),
        team.get("/openapi.json"),
        team.get("/readyz"),
        team.ask("GET", "/healthz", app=create_app(team.database, loopback_only=True), headers={"host": "evil.example"}),
    ]
    monkeypatch.setattr("service.api.problems.log.error", lambda *_, **__: None)
    monkeypatch.setattr(hosts, "every", lambda _: 1 / 0)
    answers.append(team.of("ann", "GET", "/v1/hosts"))
    assert [answer.status_code for answer in answers] == [200, 401, 404, 404, 422, 401, 200, 200, 403, 500]
    for answer in answers:
        assert {name: answer.headers.get(name) for name in ALWAYS} == ALWAYS
        assert "strict-transport-security" not in answer.headers


def test_a_page_has_a_policy_of_its_own(team: Team) -> None:
    policy = team.get("/docs").headers["content-security-policy"]
    assert "style-src 'unsafe-inline'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "script-src" not in policy


def test_only_what_is_reached_by_https_says_so(team: Team) -> None:
    app = create_app(team.database, settings=Settings(base_url="https://expctl.example.org"))
    assert team.ask("GET", "/healthz", app=app).headers["strict-transport-security"] == "max-age=31536000"
