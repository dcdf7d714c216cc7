"""Streams: counted while they are open, and ended soon after their token is. Over real sockets, since they have no end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import httpx
import pytest
import uvicorn

from service.api import standing
from service.domain.access import Scope
from service.store import hosts, tokens
from service.store.database import Database
from tests.acceptance.service import wait_for
from tests.integration.api.team import Team


@pytest.fixture
def team(database: Database) -> Team:
    with database.write() as session:
        hosts.register(session, "local", "local", {})
    made = Team(database, streams=2)
    for who in ("ann", "bob"):
        made.give(who, Scope.READ)
    return made


@pytest.fixture
def url(team: Team) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(team.app, port=0, log_config=None, timeout_graceful_shutdown=1, lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_for(lambda: server.started, every=0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


def test_a_token_has_only_so_many_open(team: Team, url: str) -> None:
    with httpx.Client(base_url=url, trust_env=False, timeout=10) as client:

        def opened(who: str) -> httpx.Response:
            asked = client.build_request("GET", "/v1/events", headers={"authorization": f"Bearer {team.tokens[who]}"})
            return client.send(asked, stream=True)

        first, second, third, other = opened("ann"), opened("ann"), opened("ann"), opened("bob")
        assert [one.status_code for one in (first, second, third, other)] == [200, 200, 429, 200]
        assert int(third.headers["retry-after"]) > 0
        first.close()
        again = wait_for(lambda: one if (one := opened("ann")).status_code == 200 else one.close())
        for one in (second, third, other, again):
            one.close()


def test_a_stream_ends_soon_after_its_token(team: Team, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "LOOK_EVERY_S", 0.2)
    headers = {"authorization": f"Bearer {team.tokens['ann']}"}
    with httpx.Client(base_url=url, trust_env=False, timeout=10, headers=headers) as client, client.stream("GET", "/v1/events") as stream:
        assert stream.status_code == 200
        with team.database.write() as session:
            tokens.revoke(session, 1, "root")
        # It ends by itself; otherwise this would end in a timeout.
        assert "expctl events" in "".join(stream.iter_text())
        assert client.get("/v1/events").status_code == 401
