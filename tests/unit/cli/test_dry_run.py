"""`expctl submit --dry-run`: what the host's worker finds, and what is said where nobody looked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from expctl import hostclient
from expctl.main import run
from tests.unit.cli.fake_hosts import asked, host, request
from tests.unit.cli.fake_service import FakeService, Json, item

Capture = pytest.CaptureFixture[str]

WRONG = {
    "about": "arguments", "verdict": "wrong", "text": "this version has no --x", "reason": "bad_arguments", "evidence": "e",
    "remedy": "write --y instead of --x",
}  # fmt: skip
GOOD = {"about": "port", "verdict": "good", "text": "8001 is free", "reason": None, "evidence": "", "remedy": ""}
BAD_RULE = "  speculative: {method: ngram, num_speculative_tokens: 5, prompt_lookup_min: 5, prompt_lookup_max: 3}\n"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostclient, "POLL_S", 0.01)
    monkeypatch.setattr(hostclient, "UNTAKEN_S", 0.0)


def file(tmp_path: Path, more: str = "") -> str:
    made = tmp_path / "exp.yaml"
    made.write_text(f"name: x\nhost: llm-two\nengine:\n  kind: vllm\n  model: /m\n{more}")
    return str(made)


def answering(fake: FakeService, found: Json) -> None:
    fake.answers |= {
        "GET /v1/hosts": [host()],
        "GET /v1/hosts/llm-two": host(busy=True),
        "POST /v1/hosts/llm-two/preflight": (202, request("preflight", None, "queued")),
        "GET /v1/hosts/llm-two/requests/7": found,
        "DELETE /v1/hosts/llm-two/preflight/7": found,
    }


def test_what_the_worker_finds_is_said_and_one_wrong_thing_is_an_exit_status(fake: FakeService, tmp_path: Path, capsys: Capture) -> None:
    answering(fake, request("preflight", ok=False, experiments=[{"name": "x", "findings": [WRONG, GOOD]}]))
    assert run(["submit", file(tmp_path), "--dry-run"]) == 1
    shown = capsys.readouterr()
    assert "WRONG: arguments: this version has no --x; write --y instead of --x" in shown.err
    assert "ok: port: 8001 is free" in shown.err
    assert shown.out.startswith("vllm serve /m")
    assert asked(fake, "POST") == ["/v1/hosts/llm-two/preflight"]
    body = json.loads(fake.bodies[fake.asked.index("POST /v1/hosts/llm-two/preflight")])
    assert set(body["experiments"][0]) == {"name", "host", "engine"}


def test_one_without_anything_wrong_is_fine(fake: FakeService, tmp_path: Path, capsys: Capture) -> None:
    answering(fake, request("preflight", experiments=[{"name": "x", "findings": [GOOD]}]))
    assert run(["submit", file(tmp_path), "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["findings"] == [GOOD]


def test_a_busy_worker_is_not_waited_for_and_the_rules_are_still_looked_at(fake: FakeService, tmp_path: Path, capsys: Capture) -> None:
    answering(fake, request("preflight", None, "queued"))
    assert run(["submit", file(tmp_path), "--dry-run"]) == 0
    assert (
        "not checked: host: paths, arguments, port, GPU memory and disk on the host: the worker of llm-two is busy"
        in capsys.readouterr().err
    )
    assert asked(fake, "DELETE") == ["/v1/hosts/llm-two/preflight/7"]
    assert run(["submit", file(tmp_path, BAD_RULE), "--dry-run"]) == 1
    shown = capsys.readouterr().err
    assert "WRONG: speculation: speculative.prompt_lookup_min (5) must be at most prompt_lookup_max (3)" in shown
    assert "not checked: host" in shown


def test_without_a_service_it_is_said_that_nobody_looked(tmp_path: Path, capsys: Capture, fake: FakeService) -> None:
    fake.answers["GET /v1/hosts"] = [host()]
    assert run(["submit", file(tmp_path), "--dry-run"]) == 0
    assert "not checked: host" in capsys.readouterr().err


def test_a_submission_remarks_on_what_the_rules_refuse_and_queues_it(fake: FakeService, tmp_path: Path, capsys: Capture) -> None:
    fake.answers["POST /v1/experiments"] = (201, item(name="x", host="llm-two"))
    assert run(["submit", file(tmp_path, BAD_RULE)]) == 0
    shown = capsys.readouterr()
    assert shown.out == "41\n"
    assert "remark on x: WRONG: speculation: speculative.prompt_lookup_min (5)" in shown.err
    assert [one.partition("?")[0] for one in asked(fake, "POST")] == ["/v1/experiments"], "a script does not wait for the host's answer"


def commands(fake: FakeService, file: str, capsys: Capture, *more: str, count: int = 1) -> list[str]:
    answering(fake, request("preflight", experiments=[{"name": "x", "findings": [GOOD]}] * count))
    assert run(["submit", file, "--dry-run", *more]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_sweep_over_the_environment_can_be_told_apart(fake: FakeService, tmp_path: Path, capsys: Capture) -> None:
    shown = commands(fake, file(tmp_path, "  env: {A: two words}\n"), capsys, "--sweep", "engine.env.NCCL_ALGO=Ring,Tree", count=2)
    assert [line.partition(" vllm serve /m")[0] for line in shown] == [
        f"A='two words' NCCL_ALGO={algorithm}" for algorithm in ("Ring", "Tree")
    ]


def test_the_gpus_that_an_experiment_names_are_shown(fake: FakeService, tmp_path: Path, capsys: Capture) -> None:
    shown = commands(fake, file(tmp_path), capsys, "--set", "engine.gpus=[0, 1]")
    assert shown[0].startswith("CUDA_VISIBLE_DEVICES=0,1 vllm serve /m")


def test_a_dry_run_shows_no_secret_of_the_environment(
    fake: FakeService, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE", "resolved-here")
    secrets = "  env: {HF_TOKEN: hidden-one, KEPT: 'https://me:hidden-two@h/', OTHER_TOKEN: 'env:MINE'}\n"
    [shown] = commands(fake, file(tmp_path, secrets + "  args: {chat-template: hidden-one}\n"), capsys)
    assert shown.startswith("HF_TOKEN='***' KEPT='https://me:***@h/' OTHER_TOKEN=env:MINE vllm serve /m")
    assert "--chat-template '***'" in shown
    assert "hidden" not in shown
    assert "resolved-here" not in shown


def test_the_environment_has_a_key_of_its_own_without_secrets(
    fake: FakeService, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MINE", "VLLM_KEY"):
        monkeypatch.setenv(name, f"resolved-here-{name}")
    more = "  api_key: env:VLLM_KEY\n  gpus: [0, 1]\n  env: {HF_TOKEN: hidden-one, NCCL_ALGO: Ring, OTHER: 'env:MINE'}\n"
    answering(fake, request("preflight", experiments=[{"name": "x", "findings": [GOOD]}]))
    assert run(["submit", file(tmp_path, more), "--dry-run", "--json"]) == 0
    [plan] = json.loads(capsys.readouterr().out)
    assert plan["env"] == {
        "CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONUNBUFFERED": "1", "VLLM_API_KEY": "env:VLLM_KEY",
        "HF_TOKEN": "***", "NCCL_ALGO": "Ring", "OTHER": "env:MINE",
    }  # fmt: skip
    assert "resolved-here" not in json.dumps(plan)
    monkeypatch.delenv("VLLM_KEY")
    assert run(["submit", file(tmp_path, more), "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["env"] == plan["env"]


def test_changes_to_a_unit_show_no_secret(fake: FakeService, tmp_path: Path, capsys: Capture) -> None:
    unit = tmp_path / "unit.yaml"
    unit.write_text("name: x\nhost: llm-two\nengine:\n  kind: vllm\n  from_unit: qwen.service\n  env: {HF_TOKEN: hidden-one, A: b}\n")
    [shown] = commands(fake, str(unit), capsys)
    assert 'env {"HF_TOKEN": "***", "A": "b"}' in shown
