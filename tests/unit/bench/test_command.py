"""`expctl bench` from its command line to its exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from expctl import globals as command_globals
from expctl.main import run
from service.domain.speculation import EngineCounters


@pytest.fixture(autouse=True)
def _fresh_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in vars(command_globals.Options()).items():
        monkeypatch.setattr(command_globals.options, name, value)


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": null, "messages": [{"role": "user", "content": "x"}]}\n{"prompt": "y"}\n')
    return str(file)


@pytest.fixture
def server(serve: Any, say: Any) -> Any:
    models = b'{"object": "list", "data": [{"id": "only"}]}'

    def script(asked: Any) -> Any:
        if asked.path == "/v1/models":
            return [say.head("200 OK", f"content-length: {len(models)}") + models]
        return say.good()

    return serve(script)


OFF = ["--engine-metrics", "off"]


def test_json_on_stdout_and_talk_on_stderr(server: Any, prompts: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    words = [
        "bench",
        "--base-url",
        server.url,
        "--prompts",
        prompts,
        "--concurrency",
        "1",
        "2",
        "--repeat",
        "2",
        "--warmup",
        "1",
        "--label",
        "L",
    ]
    assert run([*words, *OFF, "--output", str(file), "--json"]) == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert report == json.loads(file.read_text())
    assert (report["schema"], report["label"], report["model"]) == ("expctl.bench/1", "L", "only")
    assert [phase["concurrency"] for phase in report["phases"]] == [1, 2]
    assert [len(phase["requests"]) for phase in report["phases"]] == [4, 4]
    assert report["phases"][0]["speculation"] is None
    assert report["first_request"]["prompt"] == "warmup-0"
    assert {"version", "loop_lag_ms_p99"} <= set(report["client"])
    for word in ("tok/s", "TTFT ms", "TTFA ms", "TPOT ms", "concurrency 2", "1/4", "warm-up"):
        assert word in err


def test_figures_are_data_and_progress_is_talk(server: Any, prompts: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--base-url", f"{server.url}/v1", "--prompts", prompts, "--repeat", "1", "--warmup", "0", *OFF]) == 0
    out, err = capsys.readouterr()
    assert "tok/s" in out
    assert "concurrency" not in out.splitlines()[0]
    assert err.startswith("concurrency 1: ")


def test_a_failure_is_exit_1_and_says_which_and_why(serve: Any, say: Any, prompts: str, capsys: pytest.CaptureFixture[str]) -> None:
    bad = serve(lambda _: say.stream(say.delta(content="x"), say.data({"error": {"message": "EngineCore died", "code": 500}})))
    words = ["bench", "--base-url", bad.url, "--model", "m", "--prompts", prompts, "--concurrency", "1", "--repeat", "1", "--warmup", "0"]
    assert run([*words, *OFF, "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["phases"][0]["summary"]["valid"] is False
    assert "concurrency 1 is invalid: 2 of 2 requests failed: engine_dead 2 (EngineCore died)" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--concurrency", "many"], "--concurrency"),
        (["--concurrency", "1,1"], "name each level of concurrency once"),
        (["--repeat", "0"], "--repeat is wrong"),
        (["--extra-body", "{"], "--extra-body is not JSON"),
        (["--extra-body", '{"stream": false}'], "set by the benchmark itself"),
        (["--header", "nothing"], "K=V"),
        (["--header", "X=a\nb"], "cannot be sent"),
        (["--api-key", "env:EXPCTL_TEST_NOT_SET"], "is not set"),
        (["--prompts", "none.jsonl"], "cannot be read"),
        (["--base-url", "ftp://x"], "is no base URL"),
        (["--output", "/nowhere/at/all.json"], "its folder does not exist"),
        (["--output", "/"], "Is a directory"),
        (["--output", "/proc/no-such-file"], "cannot be written"),
        (["--timeout", "0"], "--timeout 0 is no time limit"),
        (["--timeout", "-1"], "--timeout -1 is no time limit"),
        (["--timeout", "nan"], "--timeout nan is no time limit"),
        (["--timeout", "inf"], "--timeout inf is no time limit"),
        (["--engine-metrics", "banana"], "--engine-metrics banana is no URL"),
        (["--engine-metrics", "http:///"], "is no URL"),
        (["--fields", "label,bogus"], "there is no field bogus"),
        (["--extra-body", '{"x": NaN}'], "--extra-body: x: nan is no number"),
        (["--extra-body", '{"x": "\\ud800"}'], "half a character"),
        (["--concurrency", "9" * 5000], "is no list of numbers"),
        (["--base-url", "ftp://me:s3cret@x"], "ftp://x is no base URL"),
        (["--base-url", "me:s3cret@x/v1"], "error: x/v1 is no base URL"),
        (["--base-url", "http://me:s3cret@x/v1", "--api-key", "k"], "only one of them could be sent"),
    ],
)
def test_wrong_usage_is_exit_2(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--base-url", "http://127.0.0.1:9", "--model", "m", *OFF, *words]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert "warm-up" not in said, "nothing was measured"
    assert "s3cret" not in said


def test_a_prompt_with_half_a_character_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "\\ud800"}\n')
    assert run(["bench", "--base-url", "http://127.0.0.1:9", "--model", "m", *OFF, "--prompts", str(file)]) == 2
    assert "--prompts: '\\ud800' holds half a character" in capsys.readouterr().err


def test_a_file_that_is_there_is_not_touched_by_the_check(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    file.write_text("old")
    assert run(["bench", "--base-url", "ftp://x", *OFF, "--output", str(file)]) == 2
    assert file.read_text() == "old"
    assert run(["bench", "--base-url", "ftp://x", *OFF, "--output", str(tmp_path / "new.json")]) == 2
    assert list(tmp_path.iterdir()) == [file]


def test_a_password_in_the_base_url_is_sent_and_shown_nowhere(server: Any, prompts: str, capsys: Any, tmp_path: Path) -> None:
    url, file = server.url.replace("http://", "http://me:s3cret@"), tmp_path / "out.json"
    words = ["bench", "--base-url", url, "--prompts", prompts, "--concurrency", "1", "--repeat", "1", "--warmup", "0", "--json"]
    place = f"{server.url.replace('http://', 'http://you:s3cret@')}/metrics"
    assert run([*words, "--engine-metrics", place, "--output", str(file)]) == 0
    out, err = capsys.readouterr()
    assert f"no engine counters at {server.url}/metrics" in err
    assert "s3cret" not in out + err + file.read_text()
    sent = {asked.path: asked.headers["authorization"] for asked in server.asked}
    assert sent["/v1/models"] == sent["/v1/chat/completions"] == "Basic bWU6czNjcmV0"
    assert sent["/metrics"] == "Basic eW91OnMzY3JldA=="


def test_a_server_with_two_models_or_none_asks_for_a_choice(serve: Any, say: Any, capsys: pytest.CaptureFixture[str]) -> None:
    listed = b'{"data": [{"id": "a"}, {"id": "b"}]}'
    two = serve(lambda _: [say.head("200 OK", f"content-length: {len(listed)}") + listed])
    assert run(["bench", "--base-url", two.url, *OFF]) == 2
    assert "choose one with --model" in capsys.readouterr().err
    none = serve(lambda _: say.refusal("404 Not Found", "{}"))
    assert run(["bench", "--base-url", none.url, *OFF]) == 1
    assert "does not list the models" in capsys.readouterr().err


def test_counters_come_from_beside_the_base_url(server: Any, prompts: str, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, Any]] = []

    def read_counters(url: str, headers: dict[str, str] | None = None, timeout_s: float = 5.0) -> EngineCounters:
        assert timeout_s
        seen.append((url, headers))
        tokens = 5.0 * sum("completions" in asked.path for asked in server.asked)
        return EngineCounters(engine="vllm", generation_tokens=tokens)

    monkeypatch.setattr("workers.engines.prometheus.read_counters", read_counters)
    words = [
        "bench",
        "--base-url",
        f"{server.url}/v1",
        "--prompts",
        prompts,
        "--concurrency",
        "1",
        "--repeat",
        "1",
        "--warmup",
        "0",
        "--json",
    ]
    assert run([*words, "--api-key", "sk-secret"]) == 0
    out, err = capsys.readouterr()
    phase = json.loads(out)["phases"][0]
    assert phase["speculation"]["status"] == phase["requests"][0]["speculation"]["status"] == "off"
    assert set(dict(seen)) == {f"{server.url}/metrics"}
    assert seen[0][1] == {"Authorization": "Bearer sk-secret"}
    assert "sk-secret" not in out + err

    seen.clear()
    assert run([*words, "--api-key", "sk-secret", "--engine-metrics", "http://127.0.0.1:1/metrics"]) == 0
    assert set(dict(seen)) == {"http://127.0.0.1:1/metrics"}
    assert seen[0][1] is None


def test_unfair_conditions_are_told(server: Any, prompts: str, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_counters(*_: Any, **__: Any) -> EngineCounters:
        asked = sum("completions" in asked.path for asked in server.asked)
        return EngineCounters(
            engine="vllm", generation_tokens=900.0 * asked, prefix_cache_queries=10.0 * asked, prefix_cache_hits=4.0 * asked
        )

    monkeypatch.setattr("workers.engines.prometheus.read_counters", read_counters)
    words = ["bench", "--base-url", server.url, "--prompts", prompts, "--concurrency", "1", "--repeat", "1", "--warmup", "0"]
    assert run(words) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "warning: the engine served somebody else too (1790 tokens that were not ours)" in out
    assert "warning: 40 % of the prompts' tokens came from the prefix cache" in out


def test_a_restarted_server_makes_the_phase_invalid_and_says_so(
    server: Any, prompts: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = iter(range(1, 1000))
    monkeypatch.setattr(
        "workers.engines.prometheus.read_counters",
        lambda *_, **__: EngineCounters(engine="vllm", generation_tokens=5.0, process_start=float(next(starts))),
    )
    words = ["bench", "--base-url", server.url, "--prompts", prompts, "--concurrency", "2", "--repeat", "1", "--warmup", "0"]
    assert run(words) == 1
    assert "concurrency 2 is invalid: server_restarted_during_run" in capsys.readouterr().err


def test_parameters_that_are_refused_end_it_before_anything_is_measured(serve: Any, say: Any, prompts: str, capsys: Any) -> None:
    refusing = serve(lambda _: say.refusal("400 Bad Request", '{"error": {"message": "min_p is not supported with speculative decoding"}}'))
    words = ["bench", "--base-url", refusing.url, "--model", "m", "--prompts", prompts, "--extra-body", '{"min_p": 0.1}', *OFF]
    assert run(words) == 1
    said = capsys.readouterr().err
    assert "error: the server refuses requests with these parameters\n  min_p is not supported with speculative decoding\n  " in said
    assert len(refusing.asked) == 2, "once with the extra keys and once without"
