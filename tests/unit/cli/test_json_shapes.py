"""Every shape that `--json` prints is the documented one, and every verb that prints JSON has its line here.

The document's own tables are made from these names (docs/json.md); here they are held against what the code answers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from docs.generate.shapes import OBJECTS, PRINTED, diagnosed, keys
from expctl import answers, fields
from expctl.answers import Answer, names
from expctl.commands import demo
from expctl.globals import options
from expctl.main import run
from service.api import hostviews, nightviews, notifiers, schemas
from service.api.deliveries import DeliveryDetail, DeliveryOut
from service.api.retention import PrunableOut
from service.api.steering import Baseline
from service.api.tokens import TokenMade, TokenOut
from service.domain import comparison, effect, events, measurement
from service.store.database import Database
from tests.unit.cli.fake_service import FakeService, item
from workers.bench.imports.base import Imported
from workers.diagnosis.diagnose import Kind

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[3]

MODELS: dict[str, type[BaseModel]] = {
    **dict.fromkeys(("submit", "cancel", "retry", "hold", "release", "move", "queue"), schemas.ExperimentOut),
    **dict.fromkeys(("show", "watch", "wait"), schemas.ExperimentDetail),
    **dict.fromkeys(("pause", "resume", "host list"), schemas.HostOut),
    **dict.fromkeys(("host add", "host show", "host give-back", "host open"), hostviews.HostDetail),
    **dict.fromkeys(("host check", "host trust", "host install", "host rehearse"), hostviews.HostRequestOut),
    **dict.fromkeys(("notify list", "notify remove", "notify enable"), notifiers.NotifierOut),
    **dict.fromkeys(("notify add", "notify rotate"), notifiers.NotifierMade),
    "notify deliveries": DeliveryOut,
    **dict.fromkeys(("notify test", "notify replay"), DeliveryDetail),
    **dict.fromkeys(("token list", "token revoke"), TokenOut),
    "token create": TokenMade,
    "timeline": nightviews.TimelineOut,
    "report": nightviews.ReportOut,
    "results": schemas.ResultsOut,
    "compare": comparison.Comparison,
    "baseline": Baseline,
    "prune": PrunableOut,
    "bench": measurement.BenchReport,
    "import": Imported,
}
PRINTED_HERE = {"demo", "logs", "doctor", "db"}
"""Verbs whose answer is no model: they are run below."""


def test_every_verb_that_prints_json_is_held_against_something() -> None:
    assert set(MODELS) | PRINTED_HERE == set(fields.OF_VERB)


@pytest.mark.parametrize("verb", MODELS)
def test_the_known_fields_are_those_of_the_answer(verb: str) -> None:
    assert sorted(fields.OF_VERB[verb]) == sorted(keys(MODELS[verb]))


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        (answers.Step, schemas.StepOut), (answers.Experiment, schemas.ExperimentOut), (answers.ExperimentDetail, schemas.ExperimentDetail),
        (answers.Host, schemas.HostOut), (answers.Event, events.Event), (answers.Results, schemas.ResultsOut),
        (answers.Effect, effect.Effect), (answers.PhaseComparison, comparison.PhaseComparison), (answers.Comparison, comparison.Comparison),
    ],
)  # fmt: skip
def test_the_client_s_answers_have_the_fields_of_the_api_s(kind: type[Answer], model: type[BaseModel]) -> None:
    assert names(kind) == set(keys(model))


def printed(capsys: Capture, *words: str) -> Any:
    assert run([*words, "--json"]) in {0, 1}
    return json.loads(capsys.readouterr().out)


def test_a_dry_run(fake: FakeService, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("name: x\nhost: local\nengine: {kind: vllm, model: m}\n")
    fake.answers = {"GET /v1/hosts": [{"name": "local", "config": {}}]}
    [plan] = printed(capsys, "submit", str(file), "--dry-run")
    assert sorted(plan) == sorted(fields.PLAN)


def test_the_log(fake: FakeService, capsys: Capture) -> None:
    pages = iter([[{"id": 1, "step": "load", "text": "loading"}], []])
    fake.answers = {"GET /v1/experiments/41/logs": lambda: {"pieces": next(pages), "cursor": 1}}
    assert tuple(printed(capsys, "logs", "41")) == fields.OF_VERB["logs"]


def test_the_doctor(capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EXPCTL_SERVER", "http://127.0.0.1:1")
    monkeypatch.setenv("EXPCTL_DATA_DIR", str(tmp_path))
    assert {tuple(sorted(check)) for check in printed(capsys, "doctor")} == {tuple(sorted(fields.CHECK))}


def test_the_demo(fake: FakeService, capsys: Capture) -> None:
    from expctl import Client  # noqa: PLC0415 - as programs import it

    options.json = True
    with Client(fake.url) as client:
        demo._show(client, [1, 2], {})
    assert tuple(json.loads(capsys.readouterr().out)) == fields.OF_VERB["demo"]


def test_the_database(migrated_file: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "expctl.db").write_bytes(migrated_file.read_bytes())
    assert tuple(printed(capsys, "db", "upgrade", "--data", str(tmp_path))) == fields.OF_VERB["db"]
    Database(f"sqlite:///{tmp_path / 'expctl.db'}").close()


@pytest.mark.parametrize("kind", Kind)
def test_a_diagnosis(kind: Kind, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "printed"
    file.write_text(PRINTED[kind])
    found = printed(capsys, "diagnose", str(file), "--as", kind, *(["--status", "0"] if kind is Kind.GPU else []))
    assert list(found) == diagnosed(kind)
    row = next(line for line in (ROOT / "docs" / "json.md").read_text().splitlines() if line.startswith(f"| `{kind}` |"))
    assert row == f"| `{kind}` | {', '.join(f'`{key}`' for key in found)} |"


STABLE = {
    "a phase of `bench`": {"concurrency", "requests", "summary", "speculation"},
    "a request of it": {
        "prompt", "repeat", "ok", "reason", "http_status", "finish_reason", "ttft_s", "ttfa_s", "tpot_s", "e2e_s", "prompt_tokens",
        "completion_tokens", "reasoning_tokens", "tokens_from", "estimated_tokens", "tps", "speculation", "text", "reasoning_text",
        "tool_calls", "error_code", "warnings",
    },
    "its summary": {
        "requests", "failed", "valid", "duration_s", "output_tokens", "output_tps", "ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "tps",
    },
    "`ttft_ms` and its like": {"mean", "p50", "p90", "p99"},
    "speculation": {
        "status", "source", "drafts", "draft_tokens", "accepted_tokens", "mean_acceptance_length", "draft_acceptance_rate",
        "per_position_acceptance", "effective_tokens_per_step", "draft_coverage", "per_engine", "comparable", "warnings",
    },
    "a phase of `compare`": {"concurrency", "effect", "prompts", "speculation"},
    "its effect": {"tps_ratio", "ci95", "smallest_detectable", "between_load_sd"},
    "a prompt of it": {
        "prompt", "tps", "tps_change", "ttft_ms", "tpot_ms", "tokens_per_step", "step_time_ratio", "break_even_tokens_per_step",
    },
    "an event": {"id", "at", "type", "actor", "host", "experiment_id", "data"},
}  # fmt: skip
"""Keys that others' programs read: never renamed, never removed."""


@pytest.mark.parametrize("what", STABLE)
def test_no_key_that_others_read_is_gone(what: str) -> None:
    model = next(model for name, model in OBJECTS if name == what)
    assert STABLE[what] <= set(keys(model))


@pytest.mark.parametrize(
    ("verb", "stable"),
    [
        ("bench", {"schema", "label", "model", "client", "phases"}),
        ("compare", {"schema", "baseline", "candidate", "comparable", "why_not", "verdict", "bench_phases", "spec_differences",
                     "warnings"}),
        ("queue", {"id", "group_id", "name", "host", "created_by", "status", "step", "outcome", "reason", "status_text", "spec",
                   "spec_hash", "engine_hash", "bench_hash", "created_at", "started_at", "finished_at", "eta", "attempt", "events_url"}),
    ],
)  # fmt: skip
def test_no_field_that_others_read_is_gone(verb: str, stable: set[str]) -> None:
    assert stable <= set(fields.OF_VERB[verb])


def test_fields_pick_from_each_item_of_a_list(fake: FakeService, capsys: Capture) -> None:
    fake.answers = {"GET /v1/experiments": {"items": [item(42), item(41)]}}
    assert run(["queue", "--fields", "id,status"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"id": 42, "status": "queued"}, {"id": 41, "status": "queued"}]
