"""Real result files of other tools, cut down, read into our definitions."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from expctl import globals as command_globals
from expctl.main import run
from expctl.views import imported
from service.domain.errors import UsageError
from service.domain.measurement import BenchClient, BenchReport, PhaseResult
from service.domain.reasons import Reason
from workers.bench.imports.base import Imported
from workers.bench.imports.reading import read_file
from workers.bench.summary import summarise

DATA = Path(__file__).resolve().parents[2] / "data" / "imports"


@pytest.fixture(autouse=True)
def _fresh_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in vars(command_globals.Options()).items():
        monkeypatch.setattr(command_globals.options, name, value)


def only(name: str) -> Imported:
    (found,) = read_file(DATA / name)
    return found


def raw(name: str) -> Any:
    return json.loads((DATA / name).read_text())


def changed(tmp_path: Path, name: str, **more: Any) -> Imported:
    file = tmp_path / name
    file.write_text(json.dumps(raw(name) | more))
    (found,) = read_file(file)
    return found


def test_vllm_with_details() -> None:
    found, theirs = only("vllm_detailed.json"), raw("vllm_detailed.json")
    (phase,) = found.phases
    assert (found.source, found.model, phase.concurrency, phase.request_rate) == ("vllm bench serve", "m", 2, None)
    summary = phase.summary
    assert (summary.requests, summary.failed, summary.valid, summary.output_tokens) == (12, 0, True, 360)
    for ours, name in ((summary.ttft_ms, "ttft"), (summary.tpot_ms, "tpot"), (summary.e2e_ms, "e2el"), (summary.itl_ms, "itl")):
        assert ours.mean == pytest.approx(theirs[f"mean_{name}_ms"], rel=1e-6), name
        assert ours.p50 == pytest.approx(theirs[f"median_{name}_ms"], rel=1e-6), name
        assert ours.p99 == pytest.approx(theirs[f"p99_{name}_ms"], rel=1e-6), name
    assert summary.output_tps == pytest.approx(theirs["output_throughput"])
    assert all(request.warnings == ["end_not_checked"] for request in phase.requests)
    spec = phase.speculation
    assert spec is not None
    assert (spec.status, spec.drafts, spec.accepted_tokens) == ("on", 148, 208)
    assert spec.mean_acceptance_length == pytest.approx(1 + 208 / 148)
    assert spec.draft_acceptance_rate == pytest.approx(208 / 740), "theirs is a percentage"
    assert len(spec.per_position_acceptance or []) == 5


def test_vllm_without_details_is_its_own_summary() -> None:
    found, whole = only("vllm_summary.json"), only("vllm_detailed.json")
    (phase,) = found.phases
    assert phase.requests == []
    assert phase.summary.ttft_ms.mean == pytest.approx(whole.phases[0].summary.ttft_ms.mean)
    assert phase.summary.ttft_ms.p90 is None
    assert phase.summary.tps.mean is None
    assert (phase.summary.requests, phase.summary.valid) == (12, True)
    assert any("summaries only" in note for note in found.notes)


def test_vllms_failures_and_its_successes_without_a_token(tmp_path: Path) -> None:
    value = raw("vllm_detailed.json")
    value["errors"][0], value["ttfts"][0], value["output_lens"][0], value["latencies"][0] = "Connection reset", 0.0, 0, 0.0
    value["output_lens"][1] = 0
    phase = changed(tmp_path, "vllm_detailed.json", **value).phases[0]
    assert [request.reason for request in phase.requests[:3]] == [Reason.BENCH_ERROR, Reason.EMPTY_OUTPUT, None]
    assert (phase.summary.failed, phase.summary.valid) == (2, False)
    assert phase.summary.ttft_ms.mean == pytest.approx(1000 * statistics.fmean(value["ttfts"][2:]))
    summary = changed(tmp_path, "vllm_summary.json", completed=10, failed=2).phases[0].summary
    assert (summary.requests, summary.failed, summary.valid) == (12, 2, False)
    nothing = changed(tmp_path, "vllm_summary.json", total_output_tokens=0).phases[0].summary
    assert (nothing.requests, nothing.failed, nothing.valid) == (12, 12, False)


def test_vllm_before_it_kept_latencies_and_without_speculation(tmp_path: Path) -> None:
    value = raw("vllm_detailed.json")
    del value["latencies"]
    for name in [name for name in value if name.startswith("spec_decode")]:
        del value[name]
    file = tmp_path / "old.json"
    file.write_text(json.dumps(value))
    (found,) = read_file(file)
    rebuilt = [request.e2e_s for request in found.phases[0].requests]
    assert rebuilt == pytest.approx([ttft + sum(gaps) for ttft, gaps in zip(value["ttfts"], value["itls"], strict=True)])
    assert found.phases[0].speculation is not None
    assert found.phases[0].speculation.status == "not_reported"


def test_guidellms_tpot_is_not_taken_for_ours() -> None:
    found, theirs = only("guidellm.json"), raw("guidellm.json")["benchmarks"][0]["metrics"]
    (phase,) = found.phases
    assert (found.source, found.source_version, found.model, phase.concurrency) == ("guidellm", "0.8.1", "m", 2)
    tpot = phase.summary.tpot_ms.mean
    assert tpot == pytest.approx(theirs["inter_token_latency_ms"]["successful"]["mean"], rel=1e-3)
    assert tpot != pytest.approx(theirs["time_per_output_token_ms"]["successful"]["mean"], rel=0.05)
    assert any("not taken for ours" in note for note in found.notes)
    assert phase.summary.ttft_ms.mean == pytest.approx(theirs["time_to_first_token_ms"]["successful"]["mean"], rel=1e-6)
    assert phase.requests[0].ttfa_s is not None
    assert phase.requests[0].ttft_s is not None
    assert phase.requests[0].ttfa_s > phase.requests[0].ttft_s
    assert (phase.summary.output_tokens, phase.summary.valid) == (240, True)


def test_guidellms_unfinished_requests_are_failures_and_a_sample_is_no_whole(tmp_path: Path) -> None:
    value = raw("guidellm.json")
    requests, totals = value["benchmarks"][0]["requests"], value["benchmarks"][0]["metrics"]["request_totals"]
    requests["incomplete"] = [requests["successful"].pop()]
    totals["successful"], totals["incomplete"] = 7, 1
    summary = changed(tmp_path, "guidellm.json", **value).phases[0].summary
    assert (summary.requests, summary.failed, summary.valid) == (8, 1, False)
    requests["successful"] = requests["successful"][:2]
    found = changed(tmp_path, "guidellm.json", **value)
    assert found.phases[0].requests == []
    assert (found.phases[0].summary.requests, found.phases[0].summary.failed) == (8, 1)
    assert found.phases[0].summary.tpot_ms.mean is not None
    assert any("sample" in note for note in found.notes)


def test_aiperfs_summary_and_its_requests_agree() -> None:
    summary, lines = only("aiperf.json"), only("aiperf.jsonl")
    (one,), (other,) = summary.phases, lines.phases
    assert (summary.source, summary.source_version, summary.model, one.concurrency) == ("aiperf", "0.13.0", "m", 2)
    assert (one.summary.requests, one.summary.valid, one.summary.output_tokens) == (8, True, 240)
    assert other.summary.requests == 8
    for name in ("ttft_ms", "e2e_ms"):
        assert getattr(other.summary, name).mean == pytest.approx(getattr(one.summary, name).mean, rel=1e-6)
    paced = [line["metrics"]["inter_token_latency"]["value"] for line in map(json.loads, (DATA / "aiperf.jsonl").read_text().splitlines())]
    assert one.summary.tpot_ms.mean == pytest.approx(statistics.fmean(paced))
    assert other.summary.tpot_ms.mean == pytest.approx(statistics.fmean(pace for pace in paced if pace)), (
        "what came in one piece has no pace"
    )
    assert one.speculation is not None
    assert one.speculation.status == "not_reported"


def test_aiperfs_speculation_failures_and_own_tokens(tmp_path: Path) -> None:
    drafted = {"total_spec_decode_steps": {"avg": 50}, "total_accepted_draft_tokens": {"avg": 90}, "total_draft_tokens": {"avg": 240}}
    more = {"error_request_count": {"avg": 2}, "input_config": {}, "is_complete": False, "incomplete_reason": "timeout", **drafted}
    found = changed(tmp_path, "aiperf.json", **more)
    (phase,) = found.phases
    assert (phase.summary.requests, phase.summary.failed, phase.summary.valid) == (10, 2, False)
    assert phase.speculation is not None
    assert phase.speculation.mean_acceptance_length == pytest.approx(2.8)
    assert phase.speculation.draft_acceptance_rate == pytest.approx(0.375)
    assert any("own tokenizer" in note for note in found.notes)
    assert any("timeout" in note for note in found.notes)


def test_our_own_files_stand_beside_theirs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests = only("vllm_detailed.json").phases[0].requests
    phase = PhaseResult(concurrency=2, requests=requests, summary=summarise(requests, 1.0))
    report = BenchReport(label="ours", model="m", client=BenchClient(version="1.0"), phases=[phase])
    file = tmp_path / "ours.json"
    file.write_text(json.dumps(report.model_dump(mode="json", by_alias=True)))
    assert run(["import", str(file), str(DATA / "guidellm.json")]) == 0
    out = capsys.readouterr().out
    for word in ("ours", "guidellm.json (guidellm)", "TTFT ms", "(-83%)", "not taken for ours", "c=2"):
        assert word in " ".join(out.split())
    assert run(["import", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["source"], found["label"]) == ("expctl.import/1", "expctl bench", "ours")
    assert run(["import", str(file), str(DATA / "aiperf.json"), "--json"]) == 0
    assert [one["source"] for one in json.loads(capsys.readouterr().out)] == ["expctl bench", "aiperf"]


def test_a_result_a_line(tmp_path: Path) -> None:
    file = tmp_path / "appended.jsonl"
    file.write_text("\n".join(json.dumps(raw("vllm_summary.json") | {"max_concurrency": level}) for level in (1, 8)) + "\n")
    assert [one.phases[0].concurrency for one in read_file(file)] == [1, 8]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON"),
        ("[1]", "holds no result"),
        ("", "is not JSON|holds no result"),
        ('{"a": 1}', "no result that expctl knows"),
        ('{"schema": "expctl.bench/1"}', "is not as expctl bench writes it"),
        ('{"benchmarks": [3], "metadata": {"guidellm_version": "1"}}', "is not as its tool writes it"),
        ('{"endpoint_type": 1, "num_prompts": "x", "total_output_tokens": 1}', "is not as its tool writes it"),
        ('{"aiperf_version": 1, "request_latency": 3, "request_count": 5}', "is not as its tool writes it"),
    ],
)
def test_what_is_no_result_is_refused(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=says) as caught:
        read_file(file)
    assert caught.value.todo
    with pytest.raises(UsageError, match="cannot be read"):
        read_file(tmp_path / "none.json")


def test_vllms_older_files_and_several_in_a_list(tmp_path: Path) -> None:
    value = raw("vllm_summary.json")
    del value["endpoint_type"]
    file = tmp_path / "old.json"
    file.write_text(json.dumps([value, value]))
    assert [(one.source, one.phases[0].summary.requests) for one in read_file(file)] == [("vllm bench serve", 12)] * 2


def test_vllms_metadata_may_write_a_number_as_text(tmp_path: Path) -> None:
    phase = changed(tmp_path, "vllm_summary.json", num_prompts="12", max_concurrency="8", duration="long").phases[0]
    assert (phase.concurrency, phase.summary.requests, phase.summary.duration_s) == (8, 12, 0.0)


def test_where_nothing_succeeded_vllms_zeros_are_no_figures(tmp_path: Path) -> None:
    zeros = {"completed": 0, "failed": 12, "total_output_tokens": 0, "mean_ttft_ms": 0.0, "mean_tpot_ms": 0.0, "output_throughput": 0.0}
    summary = changed(tmp_path, "vllm_summary.json", **zeros).phases[0].summary
    assert (summary.valid, summary.failed, summary.ttft_ms.mean, summary.output_tps, summary.output_tokens) == (False, 12, None, None, None)
    assert changed(tmp_path, "vllm_summary.json", mean_ttft_ms=float("nan")).phases[0].summary.ttft_ms.mean is None


def test_a_latency_that_cannot_be_rebuilt_is_not_known(tmp_path: Path) -> None:
    value = raw("vllm_detailed.json")
    del value["latencies"], value["itls"]
    file = tmp_path / "old.json"
    file.write_text(json.dumps(value))
    (found,) = read_file(file)
    assert {(one.e2e_s, one.tps) for one in found.phases[0].requests} == {(None, None)}


def test_aiperfs_cancelled_and_failed_runs_are_not_valid(tmp_path: Path) -> None:
    assert changed(tmp_path, "aiperf.json", was_cancelled=True).phases[0].summary.valid is False
    value = {name: figure for name, figure in raw("aiperf.json").items() if name not in {"request_latency", "request_count"}}
    file = tmp_path / "failed.json"
    file.write_text(json.dumps(value | {"error_request_count": {"unit": "requests", "avg": 12.0}}))
    (found,) = read_file(file)
    assert (found.phases[0].summary.requests, found.phases[0].summary.failed) == (12, 12)
    line = json.loads((DATA / "aiperf.jsonl").read_text().splitlines()[0])
    line["metadata"]["was_cancelled"] = True
    file.write_text(json.dumps(line))
    (found,) = read_file(file)
    assert (found.phases[0].requests[0].ok, found.phases[0].requests[0].error_message) == (False, "cancelled")


def test_aiperfs_units_are_read(tmp_path: Path) -> None:
    value = raw("aiperf.json")
    seconds = {name: figure / 1000 if isinstance(figure, float) else figure for name, figure in value["request_latency"].items()}
    found = changed(tmp_path, "aiperf.json", request_latency=seconds | {"unit": "s"})
    assert found.phases[0].summary.e2e_ms.mean == pytest.approx(value["request_latency"]["avg"])


def test_aiperfs_pooled_histogram_alone_gives_acceptance(tmp_path: Path) -> None:
    found = changed(tmp_path, "aiperf.json", pooled_spec_decode_acceptance_histogram=[4, 3, 2, 1]).phases[0].speculation
    assert found is not None
    assert (found.status, found.drafts, found.accepted_tokens, found.draft_acceptance_rate) == ("on", 10, 10, None)
    assert found.mean_acceptance_length == 2.0
    assert found.per_position_acceptance == [0.6, 0.3, 0.1]


def test_figures_stand_beside_those_of_the_same_load() -> None:
    def found(file: str, *tps: float) -> dict[str, Any]:
        phases = [
            {"concurrency": level, "request_rate": None, "summary": {"valid": True, "requests": 5, "failed": 0, "output_tps": value}}
            for level, value in zip((1, 8), tps, strict=True)
        ]
        return {"file": file, "label": file, "source": "expctl bench", "notes": [], "phases": phases}

    console = Console(width=200)
    with console.capture() as captured:
        console.print(imported.render([found("a", 20.0, 100.0), found("b", 22.0, 90.0)]))
    text = captured.get()
    assert [line.split()[-2:] for line in text.splitlines() if line.startswith("b ")] == [["22.0", "(+10%)"], ["90.0", "(-10%)"]]
    assert [line.split()[-1] for line in text.splitlines() if line.startswith("a ")] == ["20.0", "100.0"]
