from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlmodel import update

from service.domain.host_requests import RequestKind
from service.store import hostrequests, hosts, shifts
from service.store.hosts import Lease
from service.store.tables import HostRow, ShiftRow
from tests.integration.api.service import Api, Json, problem

REAL: Json = {"name": "llm-two", "ssh": "admin@llm-two", "units": "systemd", "park": ["vllm-kimi.service"]}
SHA = "SHA256:" + "a" * 43
DEEP = '{"a":' * 200 + "1" + "}" * 200


def add(api: Api, **more: Any) -> Json:
    answer = api.post("/v1/hosts", REAL | more, x_expctl_user="ann")
    assert answer.status_code in {200, 201}, answer.text
    found: Json = answer.json()
    return found


def claim(api: Api) -> Lease:
    with api.database.write() as session:
        lease = hosts.claim(session, "llm-two", "w", 3600.0)
    assert lease is not None
    return lease


def shift(api: Api, lease: Lease, **values: Any) -> None:
    """An open shift as its worker would leave it."""
    with api.database.write() as session:
        opened = shifts.open_or_resume(session, lease)
        for name, value in values.items():
            setattr(opened, name, value)
        session.add(opened)


def waits(api: Api, **more: Any) -> str:
    found: str = api.get(f"/v1/experiments/{api.submit(host='llm-two', **more)['id']}").json()["where_text"]
    return found


def test_a_host_is_added_and_then_changed(api: Api) -> None:
    answer = api.post(
        "/v1/hosts", REAL | {"window": "20:00-08:00", "time_zone": "Europe/Berlin", "close_after": "15m"}, x_expctl_user="ann"
    )
    assert (answer.status_code, answer.headers["location"]) == (201, "/v1/hosts/llm-two")
    made = answer.json()
    assert (made["name"], made["transport"], made["shift"], made["report"], made["busy"]) == ("llm-two", "ssh", None, {}, False)
    assert made["config"]["close_after"] == 900
    assert (made["window"]["window"], made["window"]["time_zone"]) == ("20:00-08:00", "Europe/Berlin")
    assert made["window"]["next_opening"][10:] in {"T20:00:00+01:00", "T20:00:00+02:00"}, "in the host's own zone"
    assert api.get("/v1/hosts/llm-two").json() == made
    assert [one["name"] for one in api.get("/v1/hosts").json()] == ["llm-two", "local"]

    answer = api.post("/v1/hosts", {"name": "llm-two", "window": None})
    assert (answer.status_code, answer.headers["location"]) == (200, "/v1/hosts/llm-two")
    assert (answer.json()["window"], answer.json()["config"]["ssh"]) == (None, "admin@llm-two")


@pytest.mark.parametrize(
    ("body", "title", "detail"),
    [
        ({}, "the name of the host is missing", ""),
        ({"name": "a/b"}, "'a/b' is no name for a host", "letters, digits"),
        ({"name": 5}, "5 is no name for a host", "letters, digits"),
        ({"name": "x", "windw": "1"}, "these settings are not possible", "windw: there is no such setting; did you mean window?"),
        ({"name": "x", "ssh": "h"}, "these settings are not possible", "units: systemd"),
        ({"name": "x", "window": "20"}, "these settings are not possible", "window: a window is written like 20:00-08:00"),
    ],
)
def test_what_is_refused_is_said_in_words(api: Api, body: Json, title: str, detail: str) -> None:
    found = problem(api.post("/v1/hosts", body), 422, "invalid-input")
    assert found["title"] == title
    assert detail in found["detail"]
    assert len(api.get("/v1/hosts").json()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "[]", "5", "null", '{"name": "\\ud800"}', '{"name": "x", "\\ud800": 1}', '{"name": "x", "ssh": "\\ud800", "units": "systemd"}',
        '{"name": "x", "close_after": NaN}', '{"name": "x", "experiment_port": 1e400}', '{"name": "x", "hooks": ' + DEEP + "}",
        '{"name": "x", "nvidia_smi": "a\\u0000b"}', '{"name": "x", "engine_address": "http://\\u0000"}',
    ],
)  # fmt: skip
def test_odd_bodies_are_refused_like_any_other(api: Api, text: str) -> None:
    problem(api.post_text("/v1/hosts", text), 422, "invalid-input")


def test_an_unknown_host_is_not_found_by_any_route(api: Api) -> None:
    for method, path in (
        ("GET", ""), ("POST", "/check"), ("POST", "/trust"), ("POST", "/install"), ("POST", "/rehearse"), ("GET", "/requests"),
        ("GET", "/requests/1"), ("DELETE", "/requests/1"), ("POST", "/give-back"), ("POST", "/open"), ("DELETE", "/open"),
    ):  # fmt: skip
        problem(api.ask(method, f"/v1/hosts/nowhere{path}"), 404, "not-found")
    problem(api.get("/v1/hosts/local/requests/1"), 404, "not-found")


def test_settings_that_a_shift_has_in_hand_are_a_conflict(api: Api) -> None:
    add(api)
    shift(api, claim(api))
    found = problem(api.post("/v1/hosts", REAL | {"park": ["other.service"]}), 409, "conflict")
    assert found["title"] == "park of llm-two cannot change now"
    assert "give-back llm-two" in found["todo"]
    assert api.post("/v1/hosts", REAL | {"window": "20:00-08:00"}).status_code == 200


@pytest.mark.parametrize(
    ("kind", "body", "args"),
    [
        ("check", None, {}),
        ("trust", None, {"pin": []}),
        ("trust", {"pin": [SHA]}, {"pin": [SHA]}),
        ("install", None, {"apply": False, "user": None}),
        ("install", {"apply": True, "user": "expctl"}, {"apply": True, "user": "expctl"}),
        ("rehearse", None, {}),
    ],
)
def test_asked_and_answered(api: Api, kind: str, body: Json | None, args: Json) -> None:
    add(api)
    answer = api.post(f"/v1/hosts/llm-two/{kind}", body, x_expctl_user="ann")
    assert (answer.status_code, answer.headers["location"]) == (202, "/v1/hosts/llm-two/requests/1")
    asked = answer.json()
    assert (asked["kind"], asked["args"], asked["status"], asked["ok"], asked["host"], asked["created_by"]) == (
        kind, args, "queued", None, "llm-two", "ann",
    )  # fmt: skip
    assert api.get(answer.headers["location"]).json() == asked
    lease = claim(api)
    with api.database.write() as session:
        taken = hostrequests.take(session, lease)
        assert taken is not None
        assert (taken.kind, taken.args) == (RequestKind(kind), args)
        hostrequests.answer(session, lease, taken.id or 0, ok=True, answer={"found": 1})
    done = api.get(answer.headers["location"]).json()
    assert (done["status"], done["ok"], done["answer"]) == ("finished", True, {"found": 1})
    assert api.get("/v1/hosts/llm-two/requests").json() == [done]
    report = api.get("/v1/hosts/llm-two").json()["report"]
    assert bool(report) == (kind == "check")
    assert problem(api.ask("DELETE", answer.headers["location"]), 409, "conflict")["detail"] == "it is finished"


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("trust", {"pin": ["MD5:aa"]}),
        ("trust", {"pin": [SHA + "x"]}),
        ("trust", {"pins": []}),
        ("install", {"user": "root ALL=(ALL) NOPASSWD: ALL\n"}),
        ("install", {"user": "-x"}),
        ("install", {"apply": "maybe"}),
    ],
)
def test_what_would_reach_a_host_is_checked_before(api: Api, kind: str, body: Json) -> None:
    add(api)
    problem(api.post(f"/v1/hosts/llm-two/{kind}", body), 422, "invalid-input")
    assert api.get("/v1/hosts/llm-two/requests").json() == []


def test_one_that_nobody_took_up_is_withdrawn(api: Api) -> None:
    add(api)
    api.post("/v1/hosts/llm-two/check")
    found = api.ask("DELETE", "/v1/hosts/llm-two/requests/1", headers={"x-expctl-user": "bob"}).json()
    assert (found["status"], found["ok"], found["answer"]) == ("finished", False, {"error": "withdrawn by bob"})


def test_why_an_experiment_waits_for_production(api: Api) -> None:
    add(api)
    assert waits(api) == "no window: `expctl host open llm-two`"
    served = {"kind": "endpoint", "base_url": "http://h/v1", "served_model_name": "m"}
    assert waits(api, name="served", engine=served) == "1 ahead on its host", "it measures what serves"
    assert api.get("/v1/hosts/llm-two").json()["shift_text"] == "no window: `expctl host open llm-two`"
    found = api.post("/v1/hosts/llm-two/open", x_expctl_user="ann").json()
    assert (found["open_by"], found["shift_text"]) == ("ann", "ann allows one shift now")
    assert waits(api, name="b") == "2 ahead on its host"
    assert api.ask("DELETE", "/v1/hosts/llm-two/open").json()["open_by"] is None
    assert waits(api, name="c") == "no window: `expctl host open llm-two`"
    api.post("/v1/hosts/llm-two/pause")
    assert waits(api, name="d") == "llm-two is paused"


def test_what_would_not_end_in_time_waits_for_the_next_night(api: Api) -> None:
    """Production of this host needs 15 minutes to come back, so in the last 10 of its window nothing begins."""
    now = datetime.now(UTC)
    add(api, window=f"{now - timedelta(hours=1):%H:%M}-{now + timedelta(minutes=10):%H:%M}")
    assert waits(api).startswith("does not fit before the window closes; the next opens ")
    add(api, window=f"{now - timedelta(hours=1):%H:%M}-{now + timedelta(hours=1):%H:%M}")
    assert waits(api, name="b") == "1 ahead on its host"
    with api.database.write() as session:
        session.execute(update(HostRow).values(blocked="a GPU is lost"))
    assert waits(api, name="c") == "llm-two is blocked: a GPU is lost"


def test_nothing_waits_for_a_window_where_nothing_is_parked(api: Api) -> None:
    assert api.submit()["where_text"] == "next on its host"
    assert api.get("/v1/hosts/local").json()["shift_text"] == ""
    assert api.post("/v1/hosts/local/open").json()["open_by"] is None


def test_a_shift_is_shown_with_what_it_parked(api: Api) -> None:
    add(api)
    record = {"units": [{"name": "vllm-kimi.service", "detail": "kimi: one token"}], "parked_at": 1796068980.0}
    shift(api, claim(api), phase="parked", parked=record, failures=["a", "b"])
    found = api.get("/v1/hosts/llm-two").json()
    assert {key: found["shift"][key] for key in ("phase", "units", "parked", "failures", "closing", "due_back")} == {
        "phase": "parked", "units": ["vllm-kimi.service"], "parked": record, "failures": 2, "closing": None, "due_back": None,
    }  # fmt: skip
    assert found["shift_text"].startswith("production parked since ")
    assert found["needs_person"] is False
    assert waits(api) == "next on its host"
    answer = api.post("/v1/hosts/llm-two/give-back", x_expctl_user="ann")
    assert (answer.status_code, answer.json()["give_back_by"]) == (202, "ann")
    with api.database.write() as session:
        session.execute(update(ShiftRow).values(phase="restoring", parked=record | {"not_restored_at": 1796068990.0}))
    [found] = [host for host in api.get("/v1/hosts").json() if host["name"] == "llm-two"]
    assert (found["shift_text"][:46], found["needs_person"]) == ("PRODUCTION IS NOT RESTORED (vllm-kimi.service)", True)
    assert waits(api, name="b") == "waits until production is back"


def test_nothing_to_give_back_and_nothing_to_open_for(api: Api) -> None:
    add(api)
    assert problem(api.post("/v1/hosts/llm-two/give-back"), 409, "conflict")["title"] == "no shift is open on llm-two"
    assert problem(api.post("/v1/hosts/llm-two/open"), 409, "conflict")["title"] == "nothing waits for a shift on llm-two"
    assert problem(api.post("/v1/hosts/local/rehearse"), 409, "conflict")["title"] == "there is nothing to rehearse on local"


def test_a_host_that_is_away_needs_a_person(api: Api) -> None:
    add(api)
    with api.database.write() as session:
        row = hosts.by_name(session, "llm-two")
        session.execute(update(HostRow).values(unreachable_since=row.created_at))
    found = api.get("/v1/hosts/llm-two").json()
    assert found["shift_text"].startswith("unreachable since ")
    assert (found["needs_person"], found["unreachable_since"] is not None) == (True, True)


def test_experiments_are_looked_at_without_being_queued(api: Api) -> None:
    add(api)
    engine = {"kind": "vllm", "model": "/m", "env": {"MY_TOKEN": "geheim123"}}
    body = {"experiments": [{"name": "x", "engine": engine, "bench": {"repeat": 3}}]}
    answer = api.post("/v1/hosts/llm-two/preflight", body, x_expctl_user="ann")
    assert answer.status_code == 202
    made = answer.json()
    assert (made["kind"], made["args"], made["status"]) == ("preflight", {"experiments": ["x"]}, "queued")
    assert "geheim123" not in api.get("/v1/hosts/llm-two/requests").text
    with api.database.read() as session:
        row = hostrequests.get(session, "llm-two", made["id"])
    assert set(row.args["experiments"][0]) == {"name", "host", "engine"}
    assert api.get("/v1/experiments").json()["items"] == []
    taken_back = api.ask("DELETE", f"/v1/hosts/llm-two/preflight/{made['id']}", headers={"x-expctl-user": "ann"})
    assert (taken_back.status_code, taken_back.json()["status"]) == (200, "finished")
    assert api.get(f"/v1/hosts/llm-two/requests/{made['id']}").json()["args"] == {"experiments": ["x"]}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"experiments": []}, 422),
        ({"experiments": [{"name": "x", "engine": {"kind": "vlm"}}]}, 422),
        ({"experiments": [{"name": "x", "host": "local", "engine": {"kind": "vllm", "model": "m"}}]}, 422),
    ],
)
def test_a_look_at_what_is_no_experiment_is_refused(api: Api, body: Json, status: int) -> None:
    add(api)
    assert api.post("/v1/hosts/llm-two/preflight", body).status_code == status


def test_a_check_is_not_withdrawn_as_a_look(api: Api) -> None:
    add(api)
    made = api.post("/v1/hosts/llm-two/check").json()
    refused = api.ask("DELETE", f"/v1/hosts/llm-two/preflight/{made['id']}")
    assert problem(refused, 409, "conflict")["title"].endswith("is no pre-flight")
