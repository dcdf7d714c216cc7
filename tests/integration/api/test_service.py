from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from service.api.app import create_app
from service.store import hosts, migrate
from service.store.database import Database
from tests.integration.api.service import Api, Hands, problem


def test_the_process_answers(api: Api) -> None:
    assert api.get("/healthz").json()["status"] == "ok"


def test_ready_at_this_versions_migration(api: Api) -> None:
    answer = api.get("/readyz")
    head = migrate.head()
    ready = {"ready": True, "database": "ok", "migration": head, "migration_head": head, "broker": "not used"}
    assert answer.status_code == 200
    assert {name: answer.json()[name] for name in ready} == ready


def test_on_loopback_it_tells_where_its_database_lies(api: Api) -> None:
    app = create_app(api.database, loopback_only=True)
    found = api.ask("GET", "/readyz", app=app, headers={"host": "127.0.0.1"}).json()["database_file"]
    url = api.database.engine.url
    assert found == (url.database if url.get_backend_name() == "sqlite" else None)


@pytest.mark.parametrize("at", ["0001", "base"])
def test_not_ready_at_an_older_migration(tmp_path: Path, at: str) -> None:
    database = Database(f"sqlite:///{tmp_path / 'old.db'}")
    migrate.upgrade(database)
    migrate.downgrade(database, at)
    answer = Api(database).get("/readyz")
    assert answer.status_code == 503
    assert (answer.json()["ready"], answer.json()["migration"]) == (False, None if at == "base" else at)
    database.close()


def test_a_database_that_does_not_answer_is_unavailable(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_session: object) -> None:
        raise OperationalError("SELECT", {"password": "secret"}, Exception("gone"))

    monkeypatch.setattr(hosts, "every", away)
    found = problem(api.get("/v1/hosts"), 503, "unavailable")
    assert "secret" not in str(found)


def test_our_own_mistake_says_so_and_no_more(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_session: object) -> None:
        raise ZeroDivisionError("the secret")

    monkeypatch.setattr(hosts, "every", broken)
    monkeypatch.setattr("service.api.problems.log.error", lambda *_, **__: None)
    found = problem(api.get("/v1/hosts"), 500, "internal-error")
    assert "secret" not in str(found)


def test_an_unknown_path_and_a_wrong_method(api: Api) -> None:
    found = problem(api.get("/v1/nonsense"), 404, "not-found")
    assert (found["title"], found["todo"]) == ("there is nothing at /v1/nonsense", "see /docs for what there is")
    answer = api.ask("PUT", "/v1/hosts")
    problem(answer, 405, "http-error")
    assert answer.headers["allow"] == "GET"


def test_hosts(api: Api) -> None:
    [host] = api.get("/v1/hosts").json()
    assert (host["name"], host["simulated"], host["busy"], host["worker"], host["worker_silent"]) == ("local", True, False, None, False)
    Hands(api.database)
    found = api.get("/v1/hosts/local").json()
    assert (found["busy"], found["worker"], found["worker_silent"]) == (True, "hands", False)
    assert problem(api.get("/v1/hosts/gpu-9"), 404, "not-found")["detail"] == "known: local"


def test_a_worker_whose_lease_ran_out_is_silent_and_not_busy(api: Api) -> None:
    with api.database.write() as session:
        assert hosts.claim(session, "local", "gone", lease_s=-1.0)
    found = api.get("/v1/hosts/local").json()
    assert (found["busy"], found["worker"], found["worker_silent"]) == (False, "gone", True)


def test_no_token_of_a_lease_leaves_the_service(api: Api) -> None:
    token = Hands(api.database).lease.token
    assert token not in api.get("/v1/hosts").text


def test_every_route_is_described(api: Api) -> None:
    document = api.get("/openapi.json").json()
    for path, methods in document["paths"].items():
        for method, described in methods.items():
            assert described.get("summary"), (method, path)
            assert re.match(r"/(v1/|healthz|readyz|metrics)", path)


def test_the_documentation_is_one_page_that_loads_nothing(api: Api) -> None:
    answer = api.get("/docs")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert not re.search(r"<script|<link|<img|https?://|@import|url\(", answer.text)
    text = html.unescape(re.sub(r"<[^>]+>", "", answer.text))
    for path, methods in api.get("/openapi.json").json()["paths"].items():
        for method, described in methods.items():
            assert f"{method.upper()} {path}{described['description']}" in text
    for anchor in re.findall(r'href="#([^"]+)"', answer.text):
        assert f'id="{anchor}"' in answer.text


@pytest.mark.parametrize("path", ["/redoc", "/docs/oauth2-redirect"])
def test_no_page_that_needs_another_server(api: Api, path: str) -> None:
    problem(api.get(path), 404, "not-found")


def test_a_user_with_a_name_without_end_is_refused(api: Api) -> None:
    problem(api.post("/v1/experiments/1/cancel", x_expctl_user="x" * 101), 422, "invalid-input")
