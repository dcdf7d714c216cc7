"""The night as the API tells it: how it goes, what each host did, and what there is to write down."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from service.store.database import Database
from tests.integration.api.service import Api, problem
from tests.nights import UNIT, a_night

Json = dict[str, Any]


@pytest.fixture
def began() -> datetime:
    return datetime.now(UTC).replace(microsecond=0) - timedelta(hours=3, minutes=12)


@pytest.fixture
def ids(api: Api, database: Database, began: datetime) -> dict[str, int]:
    """Beside what `api` has registered."""
    del api
    return a_night(database, began)


def ask(api: Api, what: str, since: datetime, **asked: Any) -> Json:
    answer = api.get(f"/v1/{what}", since=since.isoformat(), **asked)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def test_how_it_goes(api: Api, ids: dict[str, int], began: datetime) -> None:
    night = ask(api, "night", began)
    assert [host["name"] for host in night["hosts"]] == ["gpu-01", "gpu-02", "local"]
    assert "production parked since" in night["hosts"][0]["shift_text"]
    assert night["counts"] == {"running": 1, "queued": 1, "held": 1}
    assert [one["id"] for one in night["open"]] == [ids["running"], ids["queued"], ids["held"]]
    assert night["outcomes"] == {"succeeded": 4, "failed": 1}
    verdicts = {one["experiment"]["id"]: (one["versus"] or {}).get("verdict") for one in night["ended"]}
    assert list(verdicts) == [ids[name] for name in ("base", "better", "same", "failed", "worse")], "oldest first"
    assert list(verdicts.values()) == [None, "better", "no_difference_shown", None, "worse"]


def test_its_numbers_are_those_of_the_comparison(api: Api, ids: dict[str, int], began: datetime) -> None:
    night, report = ask(api, "night", began), ask(api, "report", began)
    reported = {one["experiment"]["id"]: one for one in report["ended"]}
    for one in night["ended"]:
        number = one["experiment"]["id"]
        if one["versus"] is None:
            assert reported[number]["comparison"] is None
            continue
        compared = api.get("/v1/compare", base=ids["base"], ids=number).json()
        effect = compared["bench_phases"][0]["effect"]
        assert one["versus"] == {
            "baseline": ids["base"], "verdict": compared["verdict"], "tps_ratio": effect["tps_ratio"], "ci95": effect["ci95"],
        }  # fmt: skip
        assert reported[number]["comparison"] == compared
        assert reported[number]["numbers"]["tps"] == one["tps"]


def test_only_the_latest_are_shown_but_all_are_counted(api: Api, ids: dict[str, int], began: datetime) -> None:
    night = ask(api, "night", began, limit=2)
    assert [one["experiment"]["id"] for one in night["ended"]] == [ids["failed"], ids["worse"]]
    assert [one["id"] for one in night["open"]] == [ids["running"], ids["queued"]]
    assert (sum(night["outcomes"].values()), sum(night["counts"].values())) == (5, 3)


@pytest.mark.parametrize("what", ["night", "timeline", "report"])
def test_one_host_alone(api: Api, ids: dict[str, int], began: datetime, what: str) -> None:
    del ids
    found = ask(api, what, began, host="gpu-02")
    if what == "timeline":
        assert [(lane["host"], lane["experiments"]) for lane in found["hosts"]] == [("gpu-02", [])]
    else:
        assert found["ended"] == []
        assert found["outcomes"] == {}
    problem(api.get(f"/v1/{what}", host="nowhere"), 404, "not-found")


def test_what_each_host_did(api: Api, ids: dict[str, int], began: datetime) -> None:
    timeline = ask(api, "timeline", began)
    first, second, _ = timeline["hosts"]
    assert [bar["id"] for bar in first["experiments"]] == [ids[name] for name in ("base", "better", "same", "failed", "worse", "running")]
    assert [step["step"] for step in first["experiments"][0]["steps"]] == ["clear", "launch", "load", "warm", "measure", "collect"]
    assert first["experiments"][3]["steps"][-1] == {
        "step": "load", "attempt": 1, "started_at": first["experiments"][3]["steps"][-1]["started_at"], "finished_at": None,
    }  # fmt: skip
    assert [(one["parked_at"], one["restored_at"]) for one in first["parked"]] == [(at(began + timedelta(minutes=3)), None)]
    assert (second["experiments"], second["parked"]) == ([], [])


def at(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def test_a_stretch_of_it(api: Api, ids: dict[str, int], began: datetime) -> None:
    middle = {"until": (began + timedelta(minutes=60)).isoformat()}
    timeline = ask(api, "timeline", began + timedelta(minutes=50), **middle)
    assert [bar["id"] for bar in timeline["hosts"][0]["experiments"]] == [ids["better"]]
    assert timeline["hosts"][0]["foreseen"] == [], "what is to come belongs to now"
    report = ask(api, "report", began, **middle)
    assert report["outcomes"] == {"succeeded": 1}
    problem(api.get("/v1/report", since=began.isoformat(), until=(began - timedelta(hours=1)).isoformat()), 422, "invalid-input")
    problem(api.get("/v1/report", since="18:00"), 422, "invalid-input")
    for what in ("night", "timeline", "report"):
        problem(api.get(f"/v1/{what}", since="0001-01-01T00:00:00+14:00"), 422, "invalid-input")


def test_what_there_is_to_write_down(api: Api, ids: dict[str, int], began: datetime) -> None:
    report = ask(api, "report", began)
    assert [one["experiment"]["id"] for one in report["ended"]] == [ids[name] for name in ("better", "same", "worse", "base", "failed")]
    assert report["outcomes"] == {"succeeded": 4, "failed": 1}
    assert [(cause["reason"], cause["ids"]) for cause in report["failures"]] == [("kv_cache_too_small", [ids["failed"]])]
    assert report["failures"][0]["remedy"]
    assert report["hosts"] == ["gpu-01"]
    assert (report["gpu_s"], report["gpus_unknown"], report["loads"]) == (4 * 2262 + 366, 0, 4)
    assert report["production"] == [{"host": "gpu-01", "text": f"{UNIT} is not back yet (parked)", "proven": False}]
    assert f"`expctl baseline set {ids['better']}`" in " ".join(report["next"])


def test_a_night_in_which_nothing_ended(api: Api) -> None:
    now = datetime.now(UTC) - timedelta(minutes=1)
    report = ask(api, "report", now)
    assert (report["ended"], report["outcomes"], report["next"], report["label"], report["waiting"]) == ([], {}, [], "", 0)
    assert ask(api, "night", now)["ended"] == []
    assert [lane["host"] for lane in ask(api, "timeline", now)["hosts"]] == ["local"]


def test_without_a_beginning_it_is_the_last_evening(api: Api) -> None:
    for what in ("night", "timeline", "report"):
        since = datetime.fromisoformat(api.get(f"/v1/{what}").json()["since"]).astimezone()
        assert (since.hour, since.minute) == (18, 0)
        assert timedelta() <= datetime.now(UTC) - since < timedelta(days=1, hours=1)
