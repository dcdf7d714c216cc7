"""expctl diagnose: files, stdin, kinds, and what is wrong with them."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from expctl.globals import options
from expctl.main import run
from expctl.views.diagnosis import shortened

DATA = Path(__file__).parents[2] / "data"
LOG = DATA / "vllm-0.32" / "kv0.log"


@pytest.fixture(autouse=True)
def _fresh_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("json", False), ("fields", ()), ("quiet", False), ("color", None)):
        monkeypatch.setattr(options, name, value)


def test_people_see_state_reason_evidence_and_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", str(LOG)]) == 0
    shown = capsys.readouterr().out
    for words in (
        "state      failed (vllm 0.32.0)",
        "the KV cache does not fit the requested context (kv_cache_too_small)",
        "evidence   ValueError: No available memory for the cache blocks.",
        "remedy     the weights leave nothing for the cache",
        "weights, model 1/1 (100 %)",
        "warning    ulimit: ",
    ):
        assert words in shown


@pytest.mark.parametrize("arguments", [[], ["--as", "journal"], ["--engine", "vllm"]])
def test_programs_get_json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", "--json", str(LOG), *arguments]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["state"], answer["reason"], answer["retriable"]) == ("failed", "kv_cache_too_small", False)


def test_stdin_and_a_page_from_before(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def page(drafts: int) -> str:
        name = "vllm:spec_decode_num"
        return f"{name}_drafts_total {drafts}\n{name}_draft_tokens_total {drafts * 3}\n{name}_accepted_tokens_total {drafts * 2}\n"

    before = tmp_path / "before"
    before.write_text(page(100))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(page(400).encode())))
    assert run(["diagnose", "-", "--before", str(before), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["drafts"], answer["mean_acceptance_length"]) == (300, 3.0)
    options.json = False
    assert run(["diagnose", str(before), "--as", "metrics"]) == 0
    assert "acceptance length 3.00, 66.7 % of drafts accepted" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "\n"])
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["gpu", "--status", "9"], {"gpu_freed": None, "reason": "gpu_state_unknown"}),
        (["gpu"], {"gpu_freed": None, "reason": None}),
        (["metrics"], {"scrape": "empty", "status": "unknown", "engine": None}),
    ],
)
def test_a_tool_that_said_nothing_has_an_answer(
    arguments: list[str], says: dict[str, object], text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert run(["diagnose", "--json", "-", "--as", *arguments]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {name: answer[name] for name in says} == says


def test_people_see_a_long_line_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", str(LOG.with_name("too_long.log"))]) == 0
    shown = next(line for line in capsys.readouterr().out.split("\n") if line.startswith("evidence"))
    assert " ... " in shown
    assert len(shown) < 520
    # Of several lines none is long by being one of many.
    assert shortened("a line\n" * 200) == "a line\n" * 200


def test_several_situations_are_shown_one_after_the_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paste = tmp_path / "paste"
    refused = "stderr: ssh: connect to host h port 22: Connection refused\n"
    paste.write_text(f"# result A\nexit status: 0\nstdout: (empty)\n# result B\nexit status: 255\n{refused}")
    assert run(["diagnose", str(paste)]) == 0
    shown = capsys.readouterr().out
    assert shown.index("A:") < shown.index("B:") < shown.index("the connection was refused")


def test_gpus_and_units_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paste = tmp_path / "paste"
    paste.write_text("index, memory.used [MiB], memory.total [MiB]\n0, [N/A], [N/A]\n--- unit file\n[Service]\nExecStart=/bin/x 'a b'\n")
    assert run(["diagnose", str(paste)]) == 0
    shown = capsys.readouterr().out
    assert "not known, and so not free" in shown
    assert "? of ? MiB used" in shown
    assert "/bin/x 'a b'" in shown
    paste.write_text("nothing of the kind\n")
    assert run(["diagnose", str(paste)]) == 0
    assert "nothing in it is known" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["/no/such/file"], 2, "/no/such/file cannot be read"),
        ([str(LOG), "--as", "nonsense"], 2, "--as nonsense is not known"),
        ([str(LOG), "--engine", "tensorrt"], 2, "--engine tensorrt is not known"),
        ([str(LOG), "--as", "gpu", "--before", str(LOG)], 2, "--before is for Prometheus pages"),
        ([str(LOG), "--status", "18"], 2, "--status is for --as gpu"),
        ([str(LOG), "--before", "/no/such/page"], 2, "/no/such/page cannot be read"),
        (["/dev/null"], 2, "there is nothing to diagnose"),
        (["/dev/null", "--as", "unit"], 2, "there is nothing to diagnose"),
    ],
)
def test_what_cannot_be_done_is_said(arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", *arguments]) == code
    assert words in capsys.readouterr().err
