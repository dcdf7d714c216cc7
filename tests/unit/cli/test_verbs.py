"""Verbs in this process, against a service that says what the test tells it to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from expctl.main import run
from tests.unit.cli.fake_service import FAILED, FakeService, item

Capture = pytest.CaptureFixture[str]
ODD = "\udcff"


def test_a_step_that_is_none_is_refused_with_those_that_are(fake: FakeService, capsys: Capture) -> None:
    assert run(["logs", "41", "--step", "bogus"]) == 2
    said = capsys.readouterr().err
    for step in ("clear", "launch", "load", "warm", "measure", "collect"):
        assert step in said
    assert fake.asked == []


@pytest.mark.parametrize("words", [["watch", "41"], ["watch"]])
def test_watching_a_failure_is_exit_3(fake: FakeService, words: list[str]) -> None:
    fake.answers = {
        "GET /v1/experiments/41": FAILED,
        "GET /v1/experiments": {"items": [item()]},
        "GET /v1/experiments/41/events": [],
    }
    assert run(words) == 3


def test_watching_a_success_is_exit_0(fake: FakeService) -> None:
    fake.answers = {"GET /v1/experiments/41": FAILED | {"outcome": "succeeded"}, "GET /v1/experiments/41/events": []}
    assert run(["watch", "41"]) == 0


@pytest.mark.parametrize("timeout", ["0", "0s"])
@pytest.mark.parametrize(("found", "code"), [(item(), 124), (FAILED, 3), (FAILED | {"outcome": "succeeded"}, 0)])
def test_a_timeout_of_0_looks_once(fake: FakeService, timeout: str, found: Any, code: int) -> None:
    fake.answers = {"GET /v1/experiments/41": found}
    assert run(["wait", "41", "--timeout", timeout]) == code
    assert len(fake.asked) == 1


def test_waiting_in_vain_still_says_as_json_where_it_is(fake: FakeService, capsys: Capture) -> None:
    fake.answers = {"GET /v1/experiments/41": item(), "GET /v1/experiments/42": FAILED | {"id": 42}}
    assert run(["wait", "41", "42", "41", "--timeout", "0", "--json"]) == 3
    assert [(one["id"], one["status"]) for one in json.loads(capsys.readouterr().out)] == [(41, "queued"), (42, "finished")]


@pytest.mark.parametrize(
    ("name", "path"), [("a b/c", "a%20b%2Fc"), ("..", "%2E%2E"), ("ü?#", "%C3%BC%3F%23"), ("gpu-01.lan", "gpu-01.lan")]
)
def test_a_hosts_name_is_one_segment_of_the_address(fake: FakeService, name: str, path: str) -> None:
    fake.answers = {f"POST /v1/hosts/{path}/{verb}": {"paused": verb == "pause"} for verb in ("pause", "resume")}
    assert [run([verb, "--host", name]) for verb in ("pause", "resume")] == [0, 0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["pause", "--host", ""], "the name of a host is empty"),
        (["pause", "--host", ODD], "'\\udcff' is not UTF-8"),
        (["hold", "1", "-m", ODD], "is not UTF-8"),
        (["bench", "--base-url", "http://h", "--prompts", ODD], "is not UTF-8"),
        (["prune", "--max-size", "1e999G"], "--max-size 1e999G is no size"),
        (["prune", "--max-size", "nan"], "is no size"),
        (["prune", "--max-size", "-1"], "is no size"),
        (["prune", "--older-than", f"{'9' * 400}d"], "is too long"),
        (["up", "--data", ""], "the name of the folder is empty"),
        (["demo", "--keep", ""], "the name of the folder is empty"),
        (["up", "--data", "/proc/foo"], "the data folder /proc/foo cannot be made"),
        (["db", "upgrade", "--data", "/proc/foo"], "the data folder /proc/foo cannot be made"),
        (["--server=", "--json"], "--server needs a value"),
        (["--server", "--json"], "--server needs a value"),
        (["--fields", ",", "queue"], "--fields needs a value"),
    ],
)
def test_wrong_usage_is_one_clear_error(words: list[str], says: str, capsys: Capture) -> None:
    assert run(words) == 2
    assert says in capsys.readouterr().err


def test_a_data_folder_below_a_file_cannot_be_made(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "file"
    file.touch()
    assert run(["up", "--data", str(file / "sub")]) == 2
    assert f"the data folder {file / 'sub'} cannot be made\n  Not a directory\n" in capsys.readouterr().err


def test_settings_of_the_environment_are_checked_too(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("EXPCTL_DATA_DIR", "")
    assert run(["up"]) == 2
    assert "EXPCTL_DATA_DIR is empty" in capsys.readouterr().err
    monkeypatch.setenv("EXPCTL_DATA_DIR", "/tmp/x")  # noqa: S108 - nothing is written there
    monkeypatch.setenv("EXPCTL_LEASE_S", "soon")
    assert run(["worker", "--host", "local"]) == 2
    assert "EXPCTL_LEASE_S: must be a number" in capsys.readouterr().err


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "x.yaml"
    path.write_text("name: x\nengine: {kind: vllm, model: m}\n")
    return str(path)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--sweep", "bench.repeat=[1]\n---\n[2]"], "holds several documents"),
        (["--sweep", "bench.repeat=1\n---\n2"], "not YAML"),
        (["--sweep", "bench.repeat=1] #"], "not YAML"),
        (["--set", "bench.repeat=3\n---\n4"], "holds several documents"),
        (["--set", "bench.repeat=3\n--- 4"], "holds several documents"),
        (["--sweep", "bench.repeat=1", "--sweep", "bench.repeat=2"], "--sweep bench.repeat is there twice"),
        (["--idempotency-key", ""], "cannot be sent"),
        (["--idempotency-key", "schlüssel"], "cannot be sent"),
        (["--fields", "id,nam"], "there is no field nam"),
        (["--dry-run", "--fields", "id"], "there is no field id\n  fields of submit: name, host"),
    ],
)
def test_nothing_is_submitted_by_a_wrong_command_line(fake: FakeService, file: str, words: list[str], says: str, capsys: Capture) -> None:
    assert run(["submit", file, *words]) == 2
    assert says in capsys.readouterr().err
    assert not [asked for asked in fake.asked if asked.startswith("POST")]


PHASE = {"concurrency": 1, "effect": None, "verdict": "worse", "prompts": []}
COMPARISON = {
    "schema": "expctl.comparison/1", "baseline": 1, "candidate": 2, "comparable": True, "why_not": [], "verdict": "worse",
    "bench_phases": [PHASE, PHASE | {"concurrency": 8}], "spec_differences": {}, "warnings": [], "advice": [],
}  # fmt: skip


@pytest.mark.parametrize(
    ("condition", "phases", "code", "says"),
    [
        ("tps@4<-3%", COMPARISON["bench_phases"], 2, "concurrency 4 was not measured\n  measured: 1, 8"),
        ("tps@8<-3%", COMPARISON["bench_phases"], 3, "could not be judged"),
        ("tps@4<-3%", [], 3, "could not be judged"),
        ("nonsense", [], 2, "is no condition"),
    ],
)
def test_a_condition_on_what_was_not_measured(
    fake: FakeService, condition: str, phases: Any, code: int, says: str, capsys: Capture
) -> None:
    fake.answers = {"GET /v1/compare": COMPARISON | {"bench_phases": phases}}
    assert run(["compare", "1", "2", "--json", "--fail-if", condition]) == code
    out, err = capsys.readouterr()
    assert says in err
    assert (out == "") == (code == 2)


def test_an_unknown_field_is_refused_before_anything_is_done(fake: FakeService, capsys: Capture) -> None:
    for words in (["cancel", "41"], ["queue"], ["pause"], ["baseline", "set", "41"], ["doctor"], ["demo"], ["db", "upgrade"]):
        assert run([*words, "--fields", "bogus"]) == 2
        assert f"there is no field bogus\n  fields of {words[0]}: " in capsys.readouterr().err
    assert fake.asked == []


def test_a_password_of_the_servers_address_is_sent_and_not_shown(fake: FakeService, capsys: Capture) -> None:
    address = fake.url.replace("http://", "http://me:s%40cret@")
    assert run(["--server", address, "show", "9"]) == 5
    assert fake.headers[0]["Authorization"] == "Basic bWU6c0BjcmV0"
    assert run(["--server", "http://me:s%40cret@127.0.0.1:1", "queue"]) == 1
    assert "cret" not in capsys.readouterr().err


def test_an_answer_of_a_stranger_is_no_traceback(fake: FakeService, capsys: Capture) -> None:
    fake.answers = {"GET /v1/experiments/1": (500, ["x"])}
    assert run(["show", "1"]) == 1
    assert "is this an expctl service?" in capsys.readouterr().err


def test_a_request_that_was_too_large_is_wrong_usage(fake: FakeService, file: str, capsys: Capture) -> None:
    fake.answers = {"POST /v1/experiments": (413, {"reason": "too-large", "title": "the request is too large"})}
    assert run(["submit", file]) == 2
    assert "the request is too large" in capsys.readouterr().err


READY = {"ready": True, "database": "ok", "migration": "0002", "migration_head": "0002"}


def checks(capsys: Capture) -> dict[str, dict[str, str]]:
    run(["doctor", "--json"])
    return {check["what"]: check for check in json.loads(capsys.readouterr().out)}


def test_the_doctor_looks_at_the_services_folder(
    fake: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("EXPCTL_DATA_DIR", str(tmp_path / "own"))
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    fake.answers = {"GET /readyz": READY | {"database_file": str(theirs / "expctl.db")}, "GET /v1/hosts": []}
    found = checks(capsys)
    assert found["data folder"]["found"] == f"{theirs} (the service's at {fake.url})"
    assert found["database"]["found"] == f"at migration 0002 (the service's at {fake.url})"
    assert str(tmp_path / "own") not in json.dumps(found)
    fake.answers["GET /readyz"] = READY | {"database_file": None}
    found = checks(capsys)
    assert "is not told" in found["data folder"]["found"]
    assert "disk" not in found
    fake.answers["GET /readyz"] = (503, READY | {"ready": False, "migration": "0001"})
    assert (found := checks(capsys))["database"]["state"] == "wrong", found


def test_the_doctor_says_so_where_it_looks_at_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("EXPCTL_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("EXPCTL_SERVER", "http://127.0.0.1:1")
    found = checks(capsys)
    assert found["service"]["state"] == "warning"
    for what in ("data folder", "database"):
        assert "this command's own, for no service answers" in found[what]["found"]


def test_equal_fields_are_hidden_until_they_are_asked_for(fake: FakeService, capsys: Capture) -> None:
    found = {"baseline": 41, "candidate": 42, "verdict": "invalid", "bench_phases": [], "spec_differences": {}, "equal_fields": 2}
    asked = lambda: found | {"spec_equal": {"engine.kind": "vllm"} if "all_fields=true" in fake.asked[-1] else None}  # noqa: E731
    fake.answers = {"GET /v1/compare": asked, **{f"GET /v1/experiments/{one}": item(one) for one in (41, 42)}}
    assert run(["compare", "41", "42"]) == 0
    out, err = capsys.readouterr()
    assert ("engine.kind" in out, err) == (False, "2 equal fields hidden: --all-fields\n")
    assert run(["compare", "41", "42", "--all-fields"]) == 0
    out, err = capsys.readouterr()
    assert ("engine.kind" in out, err) == (True, "")


@pytest.mark.parametrize("verb", ["cancel", "hold", "release"])
def test_what_was_done_before_a_refusal_is_told(fake: FakeService, capsys: Capture, verb: str) -> None:
    refused = (409, {"reason": "conflict", "title": "no"})
    fake.answers = {f"POST /v1/experiments/41/{verb}": item(41), f"POST /v1/experiments/42/{verb}": refused}
    assert run([verb, "41", "42", "43"]) == 6
    assert capsys.readouterr() == ("", "41  base: Queued (next on its host)\nerror: no\n")
    assert run([verb, "41", "42", "--json"]) == 6
    assert [one["id"] for one in json.loads(capsys.readouterr().out)] == [41]


@pytest.mark.parametrize(
    ("words", "what", "rest"),
    [
        (["show"], "missing argument 'ID'", ["usage: expctl show [OPTIONS] {ID}", "see `expctl show --help`"]),
        (["queue", "--status", "odd"], "invalid value for '--status': 'odd' is not one of", ["usage: ", "see `expctl queue --help`"]),
        (["host", "bogus"], "no such command 'bogus'", ["usage: expctl host ", "see `expctl host --help`"]),
        (["--nonsense"], "there is no option --nonsense", ["see `expctl --help`"]),
        (["queu"], "there is no verb queu", ["did you mean queue?"]),
        (["wait", "1", "--timeout", "soon"], "--timeout soon is no time", ["a duration is written like", "see `expctl help times`"]),
        (["notify", "test", "a", "--timeout", "1y"], "--timeout 1y is no time", ["a duration is written like", "see `expctl help times`"]),
    ],
)
def test_a_wrong_line_is_told_like_every_error(fake: FakeService, capsys: Capture, words: list[str], what: str, rest: list[str]) -> None:
    assert run(words) == 2
    out, err = capsys.readouterr()
    first, *others = err.splitlines()
    assert (out, first[: len(f"error: {what}")], len(others)) == ("", f"error: {what}", len(rest))
    assert all(line.startswith(f"  {start}") for line, start in zip(others, rest, strict=True))
    assert fake.asked == []


def test_a_verb_without_its_own_verb_says_which_there_are_and_gives_no_data(capsys: Capture) -> None:
    assert run(["baseline"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "unset" in err


def test_processes_do_not_make_a_database_in_passing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.delenv("EXPCTL_DATABASE_URL", raising=False)
    assert run(["steward", "--data", str(tmp_path)]) == 6
    assert capsys.readouterr().err.startswith(f"error: there is no database in {tmp_path}\n  name the service's folder")
    assert list(tmp_path.iterdir()) == []
