"""Two experiments and more side by side."""

from __future__ import annotations

import pytest

from tests.integration.api.service import Api, Hands, problem


def measured(api: Api, *speeds: float) -> None:
    hands = Hands(api.database)
    for speed in speeds:
        number = api.submit(name=f"at {speed}")["id"]
        assert hands.take() == number
        hands.measure(number, speed)
        hands.finish(number)


def test_one_candidate_is_an_object_and_several_are_a_list(api: Api) -> None:
    measured(api, 50.0, 25.0, 100.0)
    one = api.get("/v1/compare", base=1, ids="2").json()
    assert (one["schema"], one["baseline"], one["candidate"], one["verdict"]) == ("expctl.comparison/1", 1, 2, "worse")
    several = api.get("/v1/compare", base=1, ids="3,2").json()
    assert [(item["candidate"], item["verdict"]) for item in several] == [(3, "better"), (2, "worse")]
    assert several[1] == one


def test_what_is_not_measured_yet_cannot_be_compared(api: Api) -> None:
    measured(api, 50.0)
    api.submit()
    for base, ids in ((1, "2"), (2, "1")):
        found = problem(api.get("/v1/compare", base=base, ids=ids), 409, "not-ready")
        assert (found["title"], found["detail"]) == ("experiment 2 has nothing to compare", "it has not finished")
    api.post("/v1/experiments/2/cancel")
    assert problem(api.get("/v1/compare", base=1, ids="2"), 409, "not-ready")["detail"] == "nothing was measured"
    problem(api.get("/v1/compare", base=1, ids="9"), 404, "not-found")


@pytest.mark.parametrize("ids", ["", "x", "1,", "0", "1,,2", "9999999999", ",".join(["1"] * 51)])
def test_candidates_that_are_none(api: Api, ids: str) -> None:
    problem(api.get("/v1/compare", base=1, ids=ids), 422, "invalid-input")
