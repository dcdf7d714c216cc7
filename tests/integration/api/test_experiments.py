from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from sqlalchemy import update
from sqlmodel import col, select

from service.domain.reasons import Reason
from service.domain.status import Outcome, StepName
from service.store import experiments, hosts, workers
from service.store.tables import HostRow, WorkerRow
from tests.integration.api.service import Api, Hands, problem, spec


def test_submitted_is_queued_and_can_be_found(api: Api) -> None:
    answer = api.post("/v1/experiments", spec(priority=3), x_expctl_user="ann")
    assert answer.status_code == 201
    assert answer.headers["location"] == "/v1/experiments/1"
    body = answer.json()
    assert (body["id"], body["status"], body["created_by"], body["host"], body["priority"]) == (1, "queued", "ann", "local", 3)
    assert (body["status_text"], body["where_text"], body["outcome"], body["started_at"]) == ("Queued", "next on its host", None, None)
    assert body["spec"]["bench"]["max_tokens"] == 4096, "defaults are written out"
    shown = api.get(answer.headers["location"]).json()
    assert shown.pop("steps") == []
    assert shown.pop("starts_at") >= body.pop("starts_at"), "at once, and so a moment later"
    assert shown == body


def test_several_at_once_are_a_list(api: Api) -> None:
    answer = api.post("/v1/experiments", [spec(name="a"), spec(name="b")])
    assert (answer.status_code, [one["name"] for one in answer.json()]) == (201, ["a", "b"])
    assert "location" not in answer.headers


def test_nobody_named_is_anonymous(api: Api) -> None:
    assert api.post("/v1/experiments", spec()).json()["created_by"] == "anonymous"


@pytest.mark.parametrize("path", ["", "/events", "/logs", "/results"])
def test_an_unknown_experiment_is_not_found(api: Api, path: str) -> None:
    assert problem(api.get(f"/v1/experiments/9{path}"), 404, "not-found")["title"] == "experiment 9 does not exist"


@pytest.mark.parametrize("number", ["0", "-1", "x", str(2**31)])
def test_what_is_no_id_is_refused(api: Api, number: str) -> None:
    found = problem(api.get(f"/v1/experiments/{number}"), 422, "invalid-input")
    assert found["errors"][0]["where"] == "path.experiment_id"


def test_pages_newest_first_without_a_gap(api: Api) -> None:
    for number in range(5):
        api.submit(name=f"e{number}")
    seen: list[int] = []
    page = api.get("/v1/experiments", limit=2).json()
    assert page["next"] == "/v1/experiments?limit=2&before=4"
    while True:
        seen += [one["id"] for one in page["items"]]
        if page["next"] is None:
            break
        page = api.get(page["next"]).json()
    assert seen == [5, 4, 3, 2, 1]
    assert api.get("/v1/experiments", limit=2, cursor=4).json() == api.get("/v1/experiments", limit=2, before=4).json() != {}
    assert [one["id"] for one in api.get("/v1/experiments", cursor=3).json()["items"]] == [2, 1]


def test_a_full_last_page_has_no_next(api: Api) -> None:
    api.submit()
    api.submit()
    assert api.get("/v1/experiments", limit=2).json()["next"] is None


def test_the_next_page_asks_for_the_same(api: Api) -> None:
    odd = "a b&status=finished"
    with api.database.write() as session:
        hosts.register(session, odd, "local", {})
    for _ in range(3):
        api.submit(host=odd)
    api.submit()
    page = api.get("/v1/experiments", limit=1, host=odd, status=["queued", "held"]).json()
    assert parse_qs(urlsplit(page["next"]).query) == {"limit": ["1"], "before": ["3"], "host": [odd], "status": ["queued", "held"]}
    assert [one["id"] for one in api.get(page["next"]).json()["items"]] == [2]


def test_listed_by_status_and_host(api: Api) -> None:
    api.submit()
    api.submit()
    api.post("/v1/experiments/1/cancel")
    assert [one["id"] for one in api.get("/v1/experiments", status="queued").json()["items"]] == [2]
    assert [one["id"] for one in api.get("/v1/experiments", status=["queued", "finished"]).json()["items"]] == [2, 1]
    problem(api.get("/v1/experiments", host="gpu-9"), 404, "not-found")


@pytest.mark.parametrize("params", [{"limit": 0}, {"limit": 501}, {"before": 0}, {"status": "nonsense"}, {"limit": "x"}])
def test_parameters_out_of_range(api: Api, params: dict[str, Any]) -> None:
    found = problem(api.get("/v1/experiments", **params), 422, "invalid-input")
    assert found["errors"][0]["where"].startswith(f"query.{next(iter(params))}")


def test_an_unknown_parameter_does_no_harm(api: Api) -> None:
    api.submit()
    assert len(api.get("/v1/experiments", nonsense=1).json()["items"]) == 1


def test_cancel_what_waits(api: Api) -> None:
    api.submit()
    body = api.post("/v1/experiments/1/cancel", x_expctl_user="bob").json()
    assert (body["status"], body["outcome"], body["reason"], body["detail"]) == ("finished", "cancelled", "cancelled_by_user", "by bob")
    assert [(one["type"], one["actor"]) for one in api.get("/v1/experiments/1/events").json()] == [
        ("experiment.submitted", "ann"), ("experiment.cancel_requested", "bob"), ("experiment.finished", "bob"),
    ]  # fmt: skip


def test_cancel_what_is_held(api: Api) -> None:
    api.submit()
    assert api.post("/v1/experiments/1/hold", {"because": "driver"}).json()["status"] == "held"
    assert api.post("/v1/experiments/1/cancel").json()["outcome"] == "cancelled"


def test_cancel_what_runs_and_then_again(api: Api) -> None:
    api.submit()
    hands = Hands(api.database)
    hands.take()
    for _ in range(2):
        answer = api.post("/v1/experiments/1/cancel")
        assert (answer.status_code, answer.json()["status"], answer.json()["status_text"]) == (200, "stopping", "Stopping")
    asked = [one for one in api.get("/v1/experiments/1/events").json() if one["type"] == "experiment.cancel_requested"]
    assert len(asked) == 1


def test_cancel_what_has_finished(api: Api) -> None:
    api.submit()
    hands = Hands(api.database)
    hands.finish(hands.take())
    found = problem(api.post("/v1/experiments/1/cancel"), 409, "conflict")
    assert (found["title"], found["detail"]) == ("experiment 1 has already finished", "outcome: succeeded")
    problem(api.post("/v1/experiments/9/cancel"), 404, "not-found")


def test_a_failure_says_why_and_what_to_do(api: Api) -> None:
    api.submit()
    hands = Hands(api.database)
    number = hands.take()
    hands.log(number, StepName.LOAD, "x")
    hands.finish(number, Outcome.FAILED, Reason.KV_CACHE_TOO_SMALL, "needs 16 GiB")
    body = api.get("/v1/experiments/1").json()
    assert (body["reason_class"], body["where_text"], body["evidence"]) == ("oom", "needs 16 GiB", "the line")
    assert body["status_text"] == "Failed in load: the KV cache does not fit the requested context"
    assert "max-model-len" in body["remedy"]
    [step] = body["steps"]
    assert (step["name"], step["attempt"], step["finished_at"]) == ("load", 1, None)


def test_events_go_on_after_a_cursor(api: Api) -> None:
    api.submit()
    api.submit()
    api.post("/v1/experiments/1/cancel")
    found = api.get("/v1/experiments/1/events").json()
    assert [one["experiment_id"] for one in found] == [1, 1, 1]
    assert api.get("/v1/experiments/1/events", after=found[0]["id"]).json() == found[1:]
    assert api.get("/v1/experiments/1/events", after=found[-1]["id"]).json() == []
    problem(api.get("/v1/experiments/1/events", after=-1), 422, "invalid-input")


def test_the_log_goes_on_after_a_cursor_until_nothing_more_comes(api: Api) -> None:
    api.submit()
    hands = Hands(api.database)
    number = hands.take()
    empty = api.get("/v1/experiments/1/logs").json()
    assert empty == {"pieces": [], "cursor": 0, "finished": False}
    hands.log(number, StepName.LOAD, *(f"load {n}" for n in range(60)))
    hands.log(number, StepName.WARM, "warm 0")
    first = api.get("/v1/experiments/1/logs").json()
    assert (len(first["pieces"]), first["finished"]) == (50, False)
    rest = api.get("/v1/experiments/1/logs", after=first["cursor"]).json()
    assert [piece["text"] for piece in rest["pieces"]] == [*(f"load {n}" for n in range(50, 60)), "warm 0"]
    assert [piece["text"] for piece in api.get("/v1/experiments/1/logs", step="warm").json()["pieces"]] == ["warm 0"]
    hands.finish(number)
    assert not api.get("/v1/experiments/1/logs", after=first["cursor"]).json()["finished"], "there is more after this cursor"
    assert api.get("/v1/experiments/1/logs", after=rest["cursor"]).json() == {"pieces": [], "cursor": rest["cursor"], "finished": True}


def test_a_step_that_is_none_has_no_log(api: Api) -> None:
    api.submit()
    found = problem(api.get("/v1/experiments/1/logs", step="bogus"), 422, "invalid-input")
    assert "must be 'clear', 'launch', 'load', 'warm', 'measure' or 'collect'" in found["detail"]


def test_a_worker_that_gives_no_sign_is_told_of_before_its_lease_is_over(api: Api) -> None:
    api.submit()
    hands = Hands(api.database)
    hands.log(hands.take(), StepName.LOAD, "x")

    def seen(ago_s: float, left_s: float) -> str:
        with api.database.write() as session:
            hosts.heartbeat(session, hands.lease, left_s)
            workers.beat(session, hands.lease.host_id, hands.lease.owner, "1")
            session.execute(update(WorkerRow).values(seen=col(WorkerRow.seen) - ago_s))
        return str(api.get("/v1/experiments/1").json()["status_text"])

    assert seen(14.0, 46.0) == "Loading", "one beat is not missed yet"
    assert seen(34.0, 26.0) == "Loading; no sign of its worker for 34 s"
    assert seen(34.0, 3000.0) == "Loading", "leases may be longer, and beats as well"
    assert seen(70.0, -1.0).startswith("Loading; nobody works on it")
    api.submit()
    assert "no sign" not in api.get("/v1/experiments/2").json()["status_text"], "that one waits"


def test_where_an_experiment_is_that_nobody_works_on(api: Api) -> None:
    api.submit()
    hands = Hands(api.database)
    hands.log(hands.take(), StepName.LOAD, "x")
    assert api.get("/v1/experiments/1").json()["status_text"] == "Loading"
    with api.database.write() as session:
        hosts.heartbeat(session, hands.lease, -1.0)
    assert api.get("/v1/experiments/1").json()["status_text"] == "Loading; nobody works on it until a worker takes it up"
    api.post("/v1/experiments/1/cancel")
    [listed] = api.get("/v1/experiments").json()["items"]
    assert listed["status_text"] == "Stopping; nobody works on it until a worker takes it up"
    with api.database.write() as session:
        assert hosts.claim(session, "local", "next", 60.0)
    assert api.get("/v1/experiments/1").json()["status_text"] == "Stopping"
    with api.database.write() as session:
        hosts.release(session, replace(hands.lease, token=session.exec(select(HostRow.lease_token)).one() or ""))
    assert "nobody works on it" in api.get("/v1/experiments/1").json()["status_text"]


def test_not_before_another_year_says_which(api: Api) -> None:
    api.submit(not_before="2099-01-01T22:00")
    assert api.get("/v1/experiments/1").json()["where_text"] == "not before 01 Jan 2099 22:00"


def test_results_so_far_and_in_the_end(api: Api) -> None:
    api.submit()
    nothing = api.get("/v1/experiments/1/results").json()
    assert (nothing["phases"], nothing["first_request"], nothing["experiment"]["id"]) == ([], None, 1)
    hands = Hands(api.database)
    hands.measure(hands.take(), 50.0)
    found = api.get("/v1/experiments/1/results").json()
    assert found["first_request"]["ttft_s"] == 30.0
    [phase] = found["phases"]
    assert (phase["concurrency"], phase["summary"]["output_tps"], len(phase["requests"])) == (1, 50.0, 10)
    assert phase["requests"][0]["completion_tokens"] is None, "not known is never 0"


def test_where_it_is_in_the_queue(api: Api) -> None:
    for name in ("a", "b", "c"):
        api.submit(name=name)
    Hands(api.database).take()
    assert [one["where_text"] for one in api.get("/v1/experiments").json()["items"]][:2] == ["2 ahead on its host", "1 ahead on its host"]
    with api.database.read() as session:
        assert experiments.get(session, 1).status == "running"
