from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from expctl import globals as command_globals
from expctl.client import Client
from expctl.main import run
from expctl.views.export import COLUMNS, as_csv, as_markdown
from service.domain.measurement import PhaseResult, RequestResult
from service.domain.reasons import Reason
from service.domain.speculation import Speculation
from workers.bench.summary import summarise

ON = Speculation(status="on", source="prometheus", drafts=9, mean_acceptance_length=2.33, effective_tokens_per_step=1.71)


def measured() -> dict[str, Any]:
    good = RequestResult(
        prompt="a|b", repeat=0, ok=True, http_status=200, finish_reason="stop", ttft_s=0.2, ttfa_s=None, tpot_s=0.016, e2e_s=1.8, tps=62.5,
        prompt_tokens=12, completion_tokens=101, speculation=ON, text="not exported", warnings=["done_missing"],
    )  # fmt: skip
    bad = RequestResult(prompt="=cmd()", repeat=1, ok=False, reason=Reason.TRUNCATED_STREAM)
    phase = PhaseResult(concurrency=8, requests=[good, bad], summary=summarise([good, bad], 2.0), speculation=ON)
    item = {
        "id": 41, "name": "ngram\nk=5", "host": "gpu-01", "status_text": "Invalid", "outcome": "invalid", "facts": {},
        "spec": {"bench": {"prompts": [{"id": "a|b"}, {"id": "=cmd()"}]}},
    }  # fmt: skip
    return {"experiment": item, "phases": [phase.model_dump(mode="json")], "first_request": None}


def test_csv_has_a_row_a_request_and_says_what_its_columns_mean() -> None:
    text = as_csv(measured())
    head = [line for line in text.splitlines() if line.startswith("#")]
    assert head[0] == "# experiment 41: ngram k=5, on gpu-01; Invalid"
    assert any(line.startswith("# tpot_ms: time per output token after the first, ms:") for line in head)
    rows = list(csv.DictReader(io.StringIO("\n".join(text.splitlines()[len(head) :]))))
    assert tuple(rows[0]) == COLUMNS
    assert (rows[0]["ttft_ms"], rows[0]["ttfa_ms"], rows[0]["tpot_ms"], rows[0]["tps"]) == ("200", "", "16", "62.5")
    assert (rows[0]["ok"], rows[0]["mean_acceptance_length"], rows[0]["warnings"]) == ("true", "2.33", "done_missing")
    assert (rows[1]["ok"], rows[1]["reason"], rows[1]["completion_tokens"]) == ("false", "truncated_stream", "")
    assert rows[1]["prompt"] == "'=cmd()", "no spreadsheet takes it for a formula"
    assert "not exported" not in text


def test_every_figure_of_the_csv_is_defined() -> None:
    text = as_csv(measured())
    for name in COLUMNS:
        if name.endswith(("_ms", "tokens")) or name == "tps":
            assert f"# {name}: " in text


def test_markdown_has_a_table_a_phase_and_the_definitions() -> None:
    text = as_markdown(measured())
    assert text.startswith("## 41 ngram k=5\n")
    assert "### concurrency 8: 2 requests, 1 failed, `output_tps` 50.5, **invalid**" in text
    assert "| prompt | ok | tps | ttft_ms | ttfa_ms | tpot_ms | e2e_ms | completion_tokens | reasoning_tokens |" in text
    assert "| a\\|b | 1/1 | 62.5 | 200 | - | 16.00 | 1800 | 101 | - |" in text
    assert "| =cmd() | 0/1 | - | - | - | - | - | - | - |" in text
    assert "Speculation: on, `mean_acceptance_length` 2.33, `effective_tokens_per_step` 1.71" in text
    assert "- `ttft_ms`: time to first token, ms:" in text
    assert "- `draft_coverage`: " in text


@pytest.mark.parametrize(("form", "start"), [("csv", "# experiment 41"), ("md", "## 41"), ("json", "{"), ("table", "41 ngram")])
def test_the_verb_writes_each_format(form: str, start: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in vars(command_globals.Options()).items():
        monkeypatch.setattr(command_globals.options, name, value)
    monkeypatch.setattr(Client, "results", lambda *_, **__: measured())
    assert run(["results", "41", "--format", form]) == 0
    out = capsys.readouterr().out
    assert out.startswith(start)
    if form == "json":
        found = json.loads(out)
        assert set(found) == {"experiment", "phases", "first_request", "definitions"}
        assert "ms" in found["definitions"]["ttft_ms"]
    assert run(["results", "41", "--format", "xml"]) == 2
