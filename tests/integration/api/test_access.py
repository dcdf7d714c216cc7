"""Who may do what on a team's service."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from fastapi.routing import APIRoute
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from service.api import signin
from service.api.app import ROUTERS
from service.api.auth import scope_of
from service.domain.access import LADDER, Scope
from service.domain.status import StepName
from service.domain.tokentext import make
from service.store import events, hosts, tokens
from service.store.database import Database
from service.store.tables import TokenRow
from tests.integration.api.service import Hands, problem
from tests.integration.api.team import Team

OPEN = {"/healthz", "/readyz", "/docs"}
ROUTES = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
HIGHER = {Scope.SUBMIT, Scope.RUN_CODE, Scope.ADMIN}
ONES_OWN = {("DELETE", "/v1/tokens/{token_id}")}
"""Changes that reading suffices for: whoever has a token may end it."""


@pytest.fixture
def team(database: Database) -> Team:
    with database.write() as session:
        hosts.register(session, "local", "local", {"simulated": True})
    made = Team(database)
    for who, scope in (("ann", Scope.SUBMIT), ("bob", Scope.SUBMIT), ("eve", Scope.READ), ("root", Scope.ADMIN)):
        made.give(who, scope)
    return made


def test_every_route_has_a_scope() -> None:
    assert len(ROUTES) > 40
    assert {route.path for route in ROUTES if scope_of(route) is None} == OPEN
    changing = [(method, route) for route in ROUTES for method in route.methods or () if method not in signin.READING]
    assert {(method, route.path) for method, route in changing if scope_of(route) not in HIGHER} == ONES_OWN


def test_without_a_token_nothing_is_answered_but_what_is_open(team: Team) -> None:
    for route in ROUTES:
        path = re.sub(r"\{\w+\}", "1", route.path)
        for method in route.methods or ():
            answer = team.ask(method, path)
            if route.path in OPEN:
                assert answer.status_code == 200, path
            else:
                assert problem(answer, 401, "not-signed-in")["todo"]
                assert answer.headers["www-authenticate"] == "Bearer"
    problem(team.get("/v1/nonsense"), 401, "not-signed-in")
    assert team.get("/openapi.json").status_code == 200


def test_reading_changes_nothing_and_the_refusal_names_the_scope(team: Team) -> None:
    for route in ROUTES:
        scope = scope_of(route)
        for method in route.methods or ():
            if method not in signin.READING and scope in HIGHER:
                said = problem(team.of("eve", method, re.sub(r"\{\w+\}", "1", route.path)), 403, "forbidden")
                assert said["title"] == f"this needs the scope {scope}"
    assert team.of("eve", "GET", "/v1/experiments").status_code == 200


@pytest.mark.parametrize("scope", LADDER)
def test_each_scope_includes_those_before_it(team: Team, scope: Scope) -> None:
    team.give("one", scope)
    asked = {
        Scope.READ: ("GET", "/v1/hosts", None),
        Scope.SUBMIT: ("POST", "/v1/experiments", {"name": "x", "engine": {"kind": "vllm", "model": "m"}}),
        Scope.RUN_CODE: ("POST", "/v1/experiments", {"name": "x", "engine": {"kind": "command", "run": "true"}}),
        Scope.ADMIN: ("POST", "/v1/hosts/local/pause", None),
    }
    allowed = [one for one, (method, path, body) in asked.items() if team.of("one", method, path, body).status_code != 403]
    assert allowed == list(LADDER[: LADDER.index(scope) + 1])


def test_the_actor_is_the_owner_of_the_token_whatever_the_header_says(team: Team) -> None:
    one = team.of("ann", "POST", "/v1/experiments", {"name": "x", "engine": {"kind": "vllm", "model": "m"}}, **{"x-expctl-user": "root"})
    assert one.json()["created_by"] == "ann"
    [event] = team.of("ann", "GET", f"/v1/experiments/{one.json()['id']}/events").json()
    assert event["actor"] == "ann"


@pytest.mark.parametrize(
    ("method", "verb", "body"),
    [
        ("POST", "/cancel", None),
        ("POST", "/hold", None),
        ("POST", "/release", None),
        ("PATCH", "", {"first": True}),
        ("POST", "/retry", None),
        ("PUT", "/baseline", None),
        ("DELETE", "/baseline", None),
    ],
)
def test_only_ones_own_is_steered_unless_one_is_an_admin(team: Team, method: str, verb: str, body: object) -> None:
    one = team.queued("ann")
    path = f"/v1/experiments/{one}{verb}"
    if verb in {"/retry", "/baseline"}:
        hands = Hands(team.database)
        hands.take()
        hands.finish(one)
    if (method, verb) == ("DELETE", "/baseline"):
        assert team.of("ann", "PUT", path).status_code == 200
    said = problem(team.of("bob", method, path, body), 403, "forbidden")
    assert said["title"] == f"experiment {one} belongs to ann"
    assert team.of("root", method, path, body).is_success
    problem(team.of("bob", method, f"/v1/experiments/99{verb}", body), 404, "not-found")
    with team.database.read() as session:
        assert {event.actor for event in events.since(session)} <= {"ann", "root", "test", "worker:hands"}


def test_ones_own_is_steered(team: Team) -> None:
    one = team.queued("ann")
    for method, verb in (("POST", "/hold"), ("POST", "/release"), ("POST", "/cancel"), ("POST", "/retry")):
        assert team.of("ann", method, f"/v1/experiments/{one}{verb}").is_success


def test_what_runs_code_is_refused_by_name_also_in_a_sweep_and_in_a_retry(team: Team) -> None:
    engine = {"kind": "vllm", "model": "m", "args": {"trust-remote-code": True}, "env": {"LD_PRELOAD": "/x.so"}}
    said = problem(team.of("ann", "POST", "/v1/experiments", {"name": "x", "engine": engine}), 403, "forbidden")
    assert "engine.args.trust-remote-code, engine.env.LD_PRELOAD" in said["detail"]
    assert said["title"] == "this needs the scope run-code"
    swept = {"name": "x", "engine": {"kind": "vllm", "model": "m"}, "sweep": {"engine.executable": ["/a", "/b"]}}
    problem(team.of("ann", "POST", "/v1/experiments", swept), 403, "forbidden")
    team.give("joe", Scope.RUN_CODE)
    one = team.queued("joe", engine={"kind": "command", "run": "true"})
    assert team.of("joe", "POST", f"/v1/experiments/{one}/cancel").status_code == 200
    with team.database.write() as session:
        tokens.revoke(session, 5, "root")
    team.give("joe", Scope.SUBMIT)
    problem(team.of("joe", "POST", f"/v1/experiments/{one}/retry"), 403, "forbidden")


def test_tokens_that_are_no_good_say_why(team: Team) -> None:
    with team.database.write() as session:
        tokens.revoke(session, 1, "root")
        row = tokens.get(session, 2)
        row.expires_at = row.created_at - timedelta(seconds=1)
        session.add(row)
    team.tokens |= {"nobody": make(), "typo": team.tokens["eve"][:-1] + ("x" if team.tokens["eve"][-1] != "x" else "y")}
    said = [problem(team.of(who, "GET", "/v1/hosts"), 401, "not-signed-in")["title"] for who in ("ann", "bob", "nobody", "typo")]
    assert said == ["the token ann's is revoked", "the token bob's has expired", "the token is not known", "this is no whole token"]
    basic = team.ask("GET", "/v1/hosts", headers={"authorization": "Basic YTpi"})
    assert problem(basic, 401, "not-signed-in")["detail"] == "the request brings no bearer token"


def test_only_a_hash_of_a_token_is_kept(team: Team) -> None:
    made = team.of("root", "POST", "/v1/tokens", {"name": "ci", "owner": "joe", "scopes": ["submit"], "expires_in_s": 3600}).json()
    with team.database.read() as session:
        kept = str([tuple(row) for table in ("tokens", "events") for row in session.execute(text(f"SELECT * FROM {table}"))])  # noqa: S608
        facts = [event for event in events.since(session) if event.type == "token.created" and event.actor == "root"]
    assert made["token"] not in kept
    assert made["token"][:13] == made["prefix"]
    assert [(event.data["name"], event.data["owner"], event.data["scopes"]) for event in facts] == [("ci", "joe", ["submit"])]
    listed = team.of("root", "GET", "/v1/tokens")
    assert made["token"] not in listed.text
    assert made["created_by"] == "root"


def test_a_token_is_ended_by_its_owner_or_an_admin_at_once(team: Team) -> None:
    assert [one["owner"] for one in team.of("ann", "GET", "/v1/tokens").json()] == ["ann"]
    assert len(team.of("root", "GET", "/v1/tokens").json()) == 4
    problem(team.of("ann", "DELETE", "/v1/tokens/2"), 403, "forbidden")
    assert team.of("eve", "DELETE", "/v1/tokens/3").json()["revoked_at"]
    problem(team.of("eve", "GET", "/v1/hosts"), 401, "not-signed-in")
    assert team.of("root", "DELETE", "/v1/tokens/2").is_success
    problem(team.of("bob", "GET", "/v1/hosts"), 401, "not-signed-in")
    assert [one["name"] for one in team.of("root", "GET", "/v1/tokens").json()] == ["ann's", "root's"]
    assert len(team.of("root", "GET", "/v1/tokens?ended=true").json()) == 4


@pytest.mark.parametrize("owner", ["worker:gpu", "steward", " ", "a\nb"])
def test_nobody_is_named_like_expctl_itself(team: Team, owner: str) -> None:
    problem(team.of("root", "POST", "/v1/tokens", {"name": "ci", "owner": owner, "scopes": ["read"]}), 422, "invalid-input")


def test_two_living_tokens_do_not_share_a_name(team: Team) -> None:
    wanted = {"name": "ci", "scopes": ["read"]}
    first = team.of("root", "POST", "/v1/tokens", wanted).json()
    problem(team.of("root", "POST", "/v1/tokens", wanted), 409, "conflict")
    team.of("root", "DELETE", f"/v1/tokens/{first['id']}")
    assert team.of("root", "POST", "/v1/tokens", wanted).status_code == 201


def test_the_use_of_a_token_is_written_at_most_once_a_minute(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[int] = []
    real = signin.note_use
    monkeypatch.setattr(signin, "note_use", lambda store, one: (noted.append(one), real(store, one))[1])
    for _ in range(3):
        team.of("eve", "GET", "/v1/hosts")
    with team.database.write() as session:
        row = tokens.get(session, 3)
        first = row.used_at
        assert first is not None
        row.used_at = first - timedelta(seconds=61)
        session.add(row)
    assert noted == [3]
    team.of("eve", "GET", "/v1/hosts")
    with team.database.read() as session:
        again = session.get(TokenRow, 3)
        assert again is not None
        assert again.used_at is not None
        assert again.used_at >= first
    assert noted == [3, 3]


def test_changes_are_counted_and_readings_are_not(database: Database) -> None:
    team = Team(database, writes_per_minute=8)
    for who in ("ann", "bob"):
        team.give(who, Scope.ADMIN)
    codes = [team.of("ann", "POST", "/v1/hosts/none/pause").status_code for _ in range(3)]
    assert codes == [404, 404, 429], "a quarter of a minute's at once"
    answer = team.of("ann", "POST", "/v1/hosts/none/pause")
    problem(answer, 429, "too-many-requests")
    assert 0 < int(answer.headers["retry-after"]) <= 8
    assert team.of("bob", "POST", "/v1/hosts/none/pause").status_code == 404
    assert all(team.of("ann", "GET", "/v1/hosts").is_success for _ in range(9))


def test_whoever_tries_tokens_is_slowed_down_and_nobody_else(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    assert team.of("ann", "GET", "/v1/hosts").is_success
    codes = []
    for _ in range(12):
        team.tokens["stranger"] = make()
        codes.append(team.of("stranger", "GET", "/v1/hosts").status_code)
    assert codes == [401] * 10 + [429] * 2
    assert team.of("ann", "GET", "/v1/hosts").is_success, "the same address, and known"
    problem(team.get("/v1/hosts"), 401, "not-signed-in")
    looked: list[str] = []
    monkeypatch.setattr(tokens, "sign_in", lambda _, hashed: looked.append(hashed))
    team.of("stranger", "GET", "/v1/hosts")
    assert looked == [], "the database hears nothing of it"


def test_a_database_that_is_away_is_no_wrong_token(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_session: object, _hash: str) -> None:
        raise OperationalError("SELECT", {}, Exception("gone"))

    monkeypatch.setattr(tokens, "sign_in", away)
    problem(team.of("ann", "GET", "/v1/hosts"), 503, "unavailable")
    assert team.of("ann", "GET", "/healthz").status_code == 200


def test_what_was_refused_is_logged_without_the_token(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, object]] = []
    for place in ("service.api.signin.log", "service.api.problems.log"):
        monkeypatch.setattr(f"{place}.warning", lambda event, **more: told.append({"event": event, **more}))
    team.of("eve", "POST", "/v1/hosts/local/pause")
    team.tokens["stranger"] = make()
    team.of("stranger", "GET", "/v1/hosts")
    assert [(one["event"], one["status"], one.get("user"), one["path"]) for one in told] == [
        ("refused", 403, "eve", "/v1/hosts/local/pause"),
        ("refused", 401, None, "/v1/hosts"),
    ]
    assert team.tokens["stranger"] not in str(told)


def test_pinning_and_pruning_leave_a_trace_of_who_did_it(team: Team) -> None:
    one = team.queued("ann")
    hands = Hands(team.database)
    hands.take()
    hands.log(one, StepName.LOAD, "a line")
    hands.finish(one)
    team.of("ann", "PUT", f"/v1/experiments/{one}/baseline")
    team.of("ann", "DELETE", f"/v1/experiments/{one}/baseline")
    assert team.of("root", "POST", "/v1/prune?older_than_s=0").is_success
    with team.database.read() as session:
        found = [(event.type, event.actor) for event in events.since(session) if event.type.startswith(("baseline", "logs"))]
    assert found == [("baseline.pinned", "ann"), ("baseline.unpinned", "ann"), ("logs.pruned", "root")]


def test_the_document_says_which_scope_each_operation_needs(team: Team) -> None:
    document = team.get("/openapi.json").json()
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    said = {(path, method): one["security"] for path, item in document["paths"].items() for method, one in item.items()}
    assert said["/v1/hosts", "post"] == [{"token": ["admin"]}]
    assert said["/v1/hosts", "get"] == [{"token": ["read"]}]
    assert said["/healthz", "get"] == []


def test_a_look_at_an_experiment_runs_its_program_so_it_needs_the_same_scope(team: Team) -> None:
    plain, code = ({"kind": "vllm", "model": "m", **more} for more in ({}, {"executable": "/srv/own"}))
    path = "/v1/hosts/local/preflight"
    problem(team.of("ann", "POST", path, {"experiments": [{"name": "x", "engine": code}]}), 403, "forbidden")
    made = team.of("ann", "POST", path, {"experiments": [{"name": "x", "engine": plain}]})
    assert made.status_code == 202
    own = f"{path}/{made.json()['id']}"
    problem(team.of("bob", "DELETE", own), 403, "forbidden")
    assert team.of("ann", "DELETE", own).status_code == 200
