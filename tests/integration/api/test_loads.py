"""Repeated loads and rechecks from the request to the comparison."""

from __future__ import annotations

from typing import Any

import pytest

from service.domain.access import Scope
from service.domain.measurement import RequestResult
from service.domain.reasons import Reason
from service.domain.status import Outcome
from service.store import experiments, hosts, results
from service.store.database import Database
from tests.integration.api.service import Api, Hands, Json, problem, spec
from tests.integration.api.team import Team
from workers.bench.summary import summarise

ENGINE = {"kind": "vllm", "model": "n"}


def night(**more: Any) -> list[Json]:
    return [spec(name="base"), spec(name="ngram", engine=ENGINE, baseline="base", recheck_baseline=True, repeat_load=2, **more)]


def submitted(api: Api, body: Any) -> list[Json]:
    answer = api.post("/v1/experiments", body, x_expctl_user="ann")
    assert answer.status_code == 201, answer.text
    found = answer.json()
    return found if isinstance(found, list) else [found]


def run(hands: Hands, *speeds: float | Outcome) -> None:
    """Bring the next experiments to an end: measured at that speed, or failed."""
    for one in speeds:
        taken = hands.take()
        if isinstance(one, Outcome):
            hands.finish(taken, one, Reason.ENGINE_DEAD, "it died")
        else:
            hands.measure(taken, one)
            hands.finish(taken)


def compared(api: Api, base: int, candidate: int) -> Json:
    found: Json = api.get("/v1/compare", base=base, ids=str(candidate)).json()
    return found


def test_the_answer_shows_every_load_that_was_queued(api: Api) -> None:
    made = submitted(api, night())
    assert [(one["id"], one["load"], one["loads"], one["load_of"], one["recheck_of"], one["load_text"]) for one in made] == [
        (1, 1, 1, None, None, ""),
        (2, 1, 2, None, None, "load 1 of 2"),
        (3, 2, 2, 2, None, "load 2 of 2"),
        (4, 1, 1, None, 1, "baseline 1 again"),
    ]
    assert (made[3]["after"], made[3]["where_text"], made[1]["baseline_id"]) == ([2, 3], "after 2, 3", 1)
    assert isinstance(api.post("/v1/experiments", spec(repeat_load=2)).json(), list), "one document, several experiments"
    assert isinstance(api.post("/v1/experiments", spec(repeat_load=1)).json(), dict)


def test_the_same_key_queues_the_loads_once(api: Api) -> None:
    first = api.post("/v1/experiments", night(), idempotency_key="k")
    assert api.post("/v1/experiments", night(), idempotency_key="k").json() == first.json()
    assert len(api.get("/v1/experiments").json()["items"]) == 4


def test_a_request_for_too_many_loads_is_refused_whole(api: Api) -> None:
    found = problem(api.post("/v1/experiments", [spec(repeat_load=20) for _ in range(26)]), 422, "invalid-input")
    assert found["title"] == "the request holds 520 experiments"
    assert api.get("/v1/experiments").json()["items"] == []


def test_loads_are_pooled_and_the_recheck_shows_drift(api: Api) -> None:
    submitted(api, night())
    hands = Hands(api.database)
    run(hands, 100.0, 80.0, 82.0)
    early = compared(api, 1, 2)
    assert (early["experiments"], early["bench_phases"][0]["loads"]) == ({"baseline": [1], "recheck": [], "candidate": [2, 3]}, [1, 2])
    assert early["bench_phases"][0]["drift"] is None
    assert "of the baseline, baseline 1 again (experiment 4) has not finished: it is not in this comparison yet" in early["warnings"]
    run(hands, 90.0)
    found = compared(api, 1, 3)
    assert found["experiments"] == {"baseline": [1], "recheck": [4], "candidate": [2, 3]}
    [phase] = found["bench_phases"]
    assert phase["loads"] == [2, 2]
    assert phase["drift"]["tps_ratio"] == pytest.approx(90.5 / 100.5)
    assert phase["drift"]["shown"] is True
    assert phase["effect"]["tps_ratio"] == pytest.approx(81.5 / 95.5)
    assert any(line.startswith("concurrency 1: the host drifted: the baseline was 10.0 % slower") for line in found["warnings"])


def test_the_loads_of_one_configuration_are_compared_as_they_are(api: Api) -> None:
    submitted(api, night())
    run(Hands(api.database), 100.0, 80.0, 82.0, 90.0)
    assert compared(api, 2, 3)["experiments"] == {"baseline": [2], "recheck": [], "candidate": [3]}
    assert compared(api, 2, 3)["bench_phases"][0]["effect"]["tps_ratio"] == pytest.approx(82.5 / 80.5)
    assert compared(api, 1, 4)["experiments"] == {"baseline": [1], "recheck": [], "candidate": [4]}


def test_a_load_that_failed_is_left_out_until_it_was_tried_again(api: Api) -> None:
    submitted(api, night())
    hands = Hands(api.database)
    run(hands, 100.0, 80.0, Outcome.FAILED, 100.0)
    found = compared(api, 1, 3)
    assert (found["experiments"]["candidate"], found["candidate"], found["verdict"]) == ([2], 3, "worse")
    assert "of the candidate, load 2 of 2 (experiment 3) did not succeed: the engine died; it is left out" in found["warnings"]
    assert api.post("/v1/experiments/3/retry").json()["load_text"] == "load 2 of 2"
    run(hands, 80.0)
    again = compared(api, 1, 2)
    assert again["experiments"]["candidate"] == [2, 5]
    assert not any("left out" in line for line in again["warnings"])


def test_a_load_on_something_else_is_left_out(api: Api) -> None:
    submitted(api, night())
    hands = Hands(api.database)
    run(hands, 100.0, 80.0, 82.0, 100.0)
    with api.database.write() as session:
        row = experiments.get(session, 4)
        row.facts = row.facts | {"engine_version": "2.0"}
        session.add(row)
    found = compared(api, 1, 2)
    assert (found["experiments"]["recheck"], found["bench_phases"][0]["drift"]) == ([], None)
    line = "of the baseline, baseline 1 again (experiment 4) is left out: the engine version differs: 1.0 and 2.0"
    assert line in found["warnings"]


def test_advice_names_what_can_be_asked_for(api: Api) -> None:
    submitted(api, [spec(name="base"), spec(name="same", engine=ENGINE)])
    run(Hands(api.database), 100.0, 100.0)
    found = compared(api, 1, 2)
    assert found["verdict"] == "no_difference_shown"
    assert [line.partition(" ")[0] for line in found["advice"][2:]] == ["repeat_load:", "recheck_baseline:"]


def test_whose_baseline_it_is_makes_no_way_around_the_scope_to_run_code(database: Database) -> None:
    with database.write() as session:
        hosts.register(session, "local", "local", {})
    team = Team(database)
    team.give("joe", Scope.RUN_CODE)
    team.give("ann", Scope.SUBMIT)
    theirs = team.queued("joe", engine={"kind": "vllm", "model": "m", "env": {"LD_PRELOAD": "x.so"}})
    mine = {"name": "y", "engine": {"kind": "vllm", "model": "m"}, "recheck_baseline": True, "baseline": theirs}
    found = problem(team.of("ann", "POST", "/v1/experiments", mine), 403, "forbidden")
    assert found["title"] == "this needs the scope run-code"
    assert len(team.of("ann", "GET", "/v1/experiments").json()["items"]) == 1, "nothing of it is queued"
    assert team.of("joe", "POST", "/v1/experiments", mine).status_code == 201


PROMPT, OUTPUT = [151644, 8948, 198], list(range(1000, 1100))


def test_ids_of_tokens_are_counted_and_shown_where_they_are_asked_for(api: Api) -> None:
    [one] = submitted(api, spec())
    hands = Hands(api.database)
    assert hands.take() == one["id"]
    kept = RequestResult(prompt="a", repeat=0, ok=True, prompt_token_ids=PROMPT, output_token_ids=OUTPUT, cached_tokens=0)
    with api.database.write() as session:
        for kind in ("first_request", "measured"):
            phase = results.begin_phase(session, hands.lease, 1, 1, kind, 1)
            for result in (kept, RequestResult(prompt="b", repeat=0, ok=True)):
                results.add_request(session, hands.lease, phase, result)
            results.end_phase(session, hands.lease, phase, summarise([kept], 1.0), None)
    plain, asked = api.get("/v1/experiments/1/results").json(), api.get("/v1/experiments/1/results", ids="true").json()
    for found, prompt, output in ((plain, None, None), (asked, PROMPT, OUTPUT)):
        with_ids, without = found["phases"][0]["requests"]
        for request in (found["first_request"], with_ids):
            assert (request["prompt_token_ids"], request["output_token_ids"]) == (prompt, output)
            assert (request["prompt_id_count"], request["output_id_count"], request["cached_tokens"]) == (3, 100, 0)
        assert (without["prompt_id_count"], without["output_id_count"], without["output_token_ids"]) == (None, None, None)
        assert without["cached_tokens"] is None
