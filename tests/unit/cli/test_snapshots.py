"""What people see of each verb: narrow, wide, in colour, and in a pipe; fixed data at a fixed time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from typing import Any

import pytest

from expctl.main import run
from expctl.views import night as night_view
from expctl.views import queue as queue_view
from expctl.views import watching
from service.api.nightviews import NightOut, ReportOut, TimelineOut
from tests.unit.cli.fake_hosts import host
from tests.unit.cli.fake_night import AT, FAILED, a_full_night, a_timeline, experiments
from tests.unit.cli.fake_service import FakeService, Json, Watched, item
from tests.unit.cli.snapshots import ESCAPE, FOLDER, check

Capture = pytest.CaptureFixture[str]

STEPS = [
    {"name": "clear", "attempt": 1, "started_at": "2026-11-30T21:57:20Z", "finished_at": "2026-11-30T21:57:24Z", "evidence": {}},
    {"name": "launch", "attempt": 1, "started_at": "2026-11-30T21:57:24Z", "finished_at": "2026-11-30T21:57:26Z",
     "evidence": {"argv": ["/opt/vllm/bin/vllm", "serve", "/models/qwen3", "--max-model-len", "262144"]}},
    {"name": "load", "attempt": 1, "started_at": "2026-11-30T21:57:26Z", "finished_at": None, "evidence": {}},
]  # fmt: skip


class Fixed(datetime):
    """A clock that stands."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Fixed:
        return cls.fromisoformat(AT).astimezone(tz or UTC)


@pytest.fixture(autouse=True)
def _at_a_fixed_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (night_view, queue_view):
        monkeypatch.setattr(module, "datetime", Fixed)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def reported() -> Json:
    found: Json = json.loads((FOLDER / "report.json").read_text())
    return found


@pytest.fixture
def answers(fake: FakeService) -> FakeService:
    """A service with a night behind it."""
    report = reported()
    compared = [one["comparison"] for one in report["ended"] if one["comparison"]]
    names = {one["experiment"]["id"]: one["experiment"] for one in report["ended"]}
    hosts = [*a_full_night()["hosts"], host(name="gpu-03", blocked="the driver and its library differ", needs_person=True, shift_text="")]
    fake.answers = {
        "GET /v1/night": a_full_night(),
        "GET /v1/timeline": a_timeline(),
        "GET /v1/report": report,
        "GET /v1/compare": lambda: compared if "ids=2" in fake.asked[-1] else compared[1],
        "GET /v1/hosts": hosts,
        f"GET /v1/experiments/{FAILED}": experiments()[FAILED] | {"steps": STEPS, "facts": {"engine": "vllm", "engine_version": "0.21.0"}},
        **{f"GET /v1/experiments/{number}": one for number, one in names.items()},
    }
    return fake


VERBS = {
    "queue": ["queue"],
    "show": ["show", str(FAILED)],
    "compare": ["compare", "1", "5"],
    "compare-several": ["compare", "1", "2", "5"],
    "timeline": ["timeline"],
    "host-list": ["host", "list"],
}
LOOKS = {"80": {"COLUMNS": "80"}, "160": {"COLUMNS": "160"}, "colour": {"COLUMNS": "100", "FORCE_COLOR": "1"}, "piped": {}}


@pytest.mark.usefixtures("answers")
@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("verb", VERBS)
def test_what_a_verb_prints(verb: str, look: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    for name, value in LOOKS[look].items():
        monkeypatch.setenv(name, value)
    assert run(VERBS[verb]) == 0
    shown = capsys.readouterr().out
    check(f"{verb}-{look}", shown)
    assert ("\x1b" in shown) == (look == "colour")


@pytest.mark.usefixtures("answers")
def test_a_report_is_the_same_markdown_everywhere(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert run(["report"]) == 0
    shown = capsys.readouterr().out
    check("report", shown)
    assert shown.startswith("# Night of 30 Nov on gpu-01\n\n**2 qwen3-32b eagle3 k=3 is better: 43 % faster")


def test_watching_in_a_pipe_is_a_line_a_change(capsys: Capture) -> None:
    at = {"name": "qwen3-32b eagle3 k=5", "status": "running", "load_text": "", "eta_text": ""}
    weights = {"status_text": "Loading", "where_text": "weights 14/29 (48 %)", "eta_text": "then CUDA graphs, about 2 min left"}
    client: Any = Watched(
        item(46, **at | {"status": "queued"}),
        item(46, **at, status_text="Clearing the host", where_text=""),
        item(46, **at | weights),
        item(46, **at, status_text="Measuring", where_text="c=8, request 7 of 25, 79.4 tok/s"),
        item(46, **at | {"status": "finished", "status_text": "Succeeded", "where_text": "", "outcome": "succeeded"}),
    )
    assert watching.follow(client, [46]) == 0
    check("watch-lines", capsys.readouterr().out)


def test_the_night_of_these_tests_is_one_that_the_api_could_answer() -> None:
    report = reported()
    assert ReportOut.model_validate(report).model_dump(mode="json", by_alias=True) == report
    for found, model in ((a_full_night(), NightOut), (a_timeline(), TimelineOut)):
        assert sorted(found) == sorted(model.model_fields)


def test_no_snapshot_is_left_over() -> None:
    known = {f"{verb}-{look}" for verb in VERBS for look in LOOKS} | {"report", "watch-lines"}
    assert {path.stem for path in FOLDER.glob("*.txt")} == known
    assert ESCAPE in (FOLDER / "queue-colour.txt").read_text()
