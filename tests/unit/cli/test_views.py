"""What people see, in plain text at 120 columns."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from rich.console import Console, RenderableType

from expctl import globals as globals_module
from expctl import output
from expctl.views import experiment, queue, results, watching
from tests.unit.cli.fake_service import Json, Watched
from tests.unit.cli.fake_service import item as plain_item


def printed(drawn: RenderableType, width: int = 120) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(drawn)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def lines(text: str) -> str:
    """A snapshot as it stands in the test, without its indentation."""
    found = text.strip("\n").splitlines()
    margin = min(len(line) - len(line.lstrip()) for line in found if line.strip())
    return "\n".join(line[margin:].rstrip() for line in found).rstrip()


def item(number: int = 41, **changes: Any) -> Json:
    spec = {"name": "int4 base", "engine": {"kind": "vllm", "model": "m"}, "bench": {"prompts": "five"}}
    return plain_item(number, **{"name": spec["name"], "host": "gpu-01", "spec": spec, **changes})


def step(name: str, start: str, end: str | None, attempt: int = 1, **evidence: Any) -> Json:
    at = "2026-11-30T"
    finished = None if end is None else f"{at}{end}Z"
    return {"name": name, "attempt": attempt, "started_at": f"{at}{start}Z", "finished_at": finished, "evidence": evidence}


FAILED = item(
    40, name="int4 ngram", status="finished", outcome="failed",
    status_text="Failed in load: the KV cache does not fit the requested context",
    where_text="16.0 GiB KV cache is needed", evidence="estimated maximum model length is 75312", remedy="lower max-model-len",
    started_at="2026-11-30T20:00:00Z", finished_at="2026-11-30T21:45:00Z", attempt=2,
    facts={"engine": "vllm", "engine_version": "0.32.0", "load": {"weights_gib": 540.1}},
    steps=[
        step("clear", "20:00:00", "20:00:01"), step("launch", "20:00:01", None),
        step("clear", "20:10:00", "20:10:04", 2), step("launch", "20:10:04", "20:10:06", 2, argv=["vllm", "serve", "/my model"]),
        step("load", "20:10:06", None, 2),
    ],
)  # fmt: skip


def test_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    running = item(
        status="running", status_text="Measuring", where_text="c=8, request 3 of 25, 62.6 tok/s",
        started_at="2026-11-30T20:00:00Z", finished_at="2026-11-30T20:00:41Z",
        eta=f"{datetime.now(UTC) + timedelta(days=2):%Y-%m-%d}T02:06:00Z",
    )  # fmt: skip
    far = f"{datetime.now(UTC) + timedelta(days=2):%d %b} 02:06"
    text = printed(queue.table([running, item(42), FAILED]), 140)
    assert "c=8, request 3 of 25, 62.6 tok/s" in text
    assert f" 41s  {far}" in text
    assert "Failed in load  the KV cache does not fit the requested context: 16.0 GiB KV cache is needed  1h45m" in text


def test_when_it_ends_by_the_reader_s_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    soon = datetime.now(UTC) + timedelta(minutes=50)
    assert queue.eta(item(eta=soon.isoformat())) == f"{soon.astimezone(ZoneInfo('Europe/Berlin')):%H:%M}"
    assert queue.eta(item(eta=None)) == "-"
    monkeypatch.undo()
    time.tzset()


WAITS = "starts about 02:10, ends about 03:05 (p90 03:20); by 12 loads of this configuration"
LEFT = "then compiling and CUDA graphs, about 41 min left (p90 55 min), all done about 03:05 (p90 03:20)"


def test_what_waits_says_when_it_runs() -> None:
    waits = item(42, eta="2026-12-01T03:05:00Z", eta_text=WAITS)
    assert f"next on its host; {WAITS}" in " ".join(printed(experiment.render(waits)).split())
    assert WAITS in " ".join(printed(queue.drawn([waits], 59)).split())


def test_what_loads_says_how_long_it_goes_on() -> None:
    loading = item(status="running", status_text="Loading", where_text="weights 29/64 (45 %)", eta_text=LEFT)
    told = f"weights 29/64 (45 %), {LEFT}"
    assert told in " ".join(printed(experiment.render(loading)).split())
    assert watching._block(loading).plain.endswith(f"Loading · {told}")


def test_the_night_in_one_line() -> None:
    hosts = [
        {"name": "a", "blocked": None, "busy": True, "worker_silent": False, "simulated": True, "paused": False},
        {"name": "b", "blocked": None, "busy": False, "worker_silent": True, "simulated": False, "paused": False},
        {"name": "c", "blocked": "not restored", "busy": False, "worker_silent": False, "simulated": False, "paused": False},
        {"name": "d", "blocked": None, "busy": False, "worker_silent": False, "simulated": False, "paused": False},
    ]
    assert queue.summary([item(), item(), FAILED], hosts) == (
        "3 shown: 2 queued, 1 failed · a busy (simulated), b silent: its worker is gone, c blocked: not restored, d idle"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (0.4, "0s"), (99.4, "99s"), (99.6, "1m"), (180, "3m"), (5999, "99m"), (6000, "1h40m"), (3 * 3600 + 299, "3h04m")],
)
def test_spans(seconds: float, text: str) -> None:
    assert queue.span(seconds) == text


def test_a_failure_on_one_screen() -> None:
    text = printed(experiment.render(FAILED))
    head, facts = text.split("submitted", 1)
    assert head.rstrip() == lines("""
        40 int4 ngram · gpu-01 · spec 9f3c1e2 · by ann
        Failed in load: the KV cache does not fit the requested context
        ✓ clear 4s  ✓ launch 2s  ✗ load  ○ warm  ○ measure  ○ collect
        16.0 GiB KV cache is needed
        evidence: estimated maximum model length is 75312
        what to do: lower max-model-len
    """)
    for words in ("1h45m", "attempt    2", "vllm 0.32.0", "vllm serve '/my model'", '{"weights_gib": 540.1}', '"model": "m"'):
        assert words in facts


def test_one_that_waits_shows_no_empty_lines() -> None:
    assert printed(experiment.render(item())) == lines("""
        41 int4 base · gpu-01 · spec 9f3c1e2 · by ann
        Queued
        ○ clear  ○ launch  ○ load  ○ warm  ○ measure  ○ collect
        next on its host
        submitted  2026-11-30T20:00:00Z
        time       -
        attempt    1
        spec       {"name": "int4 base", "engine": {"kind": "vllm", "model": "m"}, "bench": {"prompts": "five"}}
    """)


def test_a_success_is_told_no_remedy() -> None:
    assert "what to do" not in printed(experiment.render(item(status="finished", outcome="cancelled", remedy="nothing")))


def test_a_running_step() -> None:
    since = (datetime.now(UTC) - timedelta(minutes=12)).isoformat()
    at_launch = step("launch", "20:00:01", None) | {"started_at": since}
    running = item(status="running", steps=[step("clear", "20:00:00", "20:00:01"), at_launch])
    assert experiment.step_strip(running) == "✓ clear 1s  ● launch 12m  ○ load  ○ warm  ○ measure  ○ collect"


def asked(prompt: str, **changes: Any) -> Json:
    base: Json = {
        "prompt": prompt, "repeat": 0, "ok": True, "reason": None, "error_message": None, "tps": 62.64, "ttft_s": 0.2123, "ttfa_s": 1.5,
        "tpot_s": 0.01601, "completion_tokens": 4096, "reasoning_tokens": None,
    }  # fmt: skip
    return {**base, **changes}


def phase(*requests: Json, **changes: Any) -> Json:
    failed = sum(not one["ok"] for one in requests)
    base = {"concurrency": 1, "summary": {"requests": len(requests), "failed": failed, "output_tps": 70.14}, "speculation": None}
    return {**base, "requests": list(requests), **changes}


ON = {
    "status": "on", "mean_acceptance_length": 2.333, "draft_acceptance_rate": 0.266, "per_position_acceptance": [0.56, 0.13],
    "effective_tokens_per_step": 1.71, "draft_coverage": 0.53,
}  # fmt: skip


def test_results() -> None:
    found = {
        "experiment": item(status_text="Invalid in collect: an answer had no output"),
        "first_request": {"ttft_s": 30.1234},
        "phases": [
            phase(
                asked("maths", tps=None, tpot_s=None, completion_tokens=None),
                asked("code"), asked("code", tps=60.0, reasoning_tokens=100),
                asked("code", ok=False, repeat=2, reason="empty_output", tps=9999.0),
                speculation=ON,
            ),
            phase(asked("code"), concurrency=8, summary={"requests": 1, "failed": 0, "output_tps": None}, speculation={"status": "off"}),
        ],
    }  # fmt: skip
    assert printed(results.render(found)) == lines("""
        41 int4 base · Invalid in collect: an answer had no output
        first request after the load: TTFT 30123 ms (kept apart)

        concurrency 1: 4 requests, 1 failed, 70.1 tok/s together
        prompt  n  tok/s  TTFT ms  first answer ms  TPOT ms  tokens  reasoning
        code    2   61.3      212             1500    16.01    4096        100
        maths   1      -      212             1500        -       -          -
        speculation: mean acceptance length 2.33, 27% of drafts accepted, by position 56% 13%, 1.71 tokens per step, 53% of
        steps drafted
        failed: code #2: empty_output

        concurrency 8: 1 requests, 0 failed, tokens not reported
        prompt  n  tok/s  TTFT ms  first answer ms  TPOT ms  tokens  reasoning
        code    1   62.6      212             1500    16.01    4096          -
        speculation: off
    """)


@pytest.mark.parametrize(("width", "tables"), [(80, 1), (60, 2), (40, 3)])
def test_results_on_a_narrow_screen(width: int, tables: int) -> None:
    text = printed(results.render({"experiment": item(), "first_request": None, "phases": [phase(asked("explanation"))]}), width)
    assert sum(line.startswith("prompt") for line in text.splitlines()) == tables
    assert {"62.6", "212", "1500", "16.01", "4096"} <= set(text.split()), "no figure is cut"


def test_no_results_yet() -> None:
    assert printed(results.render({"experiment": item(), "first_request": None, "phases": []})) == "41 int4 base · Queued"


@pytest.mark.parametrize(("status", "text"), [("never_drafted", "never drafted"), ("not_reported", "not reported"), ("unknown", "unknown")])
def test_speculation_without_figures_is_words(status: str, text: str) -> None:
    assert results.speculation_text({"status": status}) == f"speculation: {text}"


def test_speculation_whose_length_is_not_known() -> None:
    """As vLLM's V0 counters and llama.cpp give it."""
    assert "None" not in results.speculation_text({**ON, "mean_acceptance_length": None})


@pytest.mark.parametrize("name", ["[bold]x", "[/nope]", ":smile:"])
def test_names_are_text_not_markup(name: str) -> None:
    assert name in printed(queue.table([item(name=name)]))
    found = {"experiment": item(), "first_request": None, "phases": [phase(asked(name))]}
    found["experiment"]["spec"]["bench"]["prompts"] = [{"id": name}]
    assert name in printed(results.render(found))


@pytest.fixture
def use_json(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    fresh = globals_module.Options()
    for module in (globals_module, output, watching):
        monkeypatch.setattr(module, "options", fresh)

    def on() -> None:
        fresh.json = True

    return on


LOADING = item(status="running", status_text="Loading", where_text="weights 29/64 (45 %)")
DONE = item(status="finished", outcome="succeeded", status_text="Succeeded", where_text="")


@pytest.mark.usefixtures("use_json")
def test_a_pipe_gets_a_line_a_change(capsys: pytest.CaptureFixture[str]) -> None:
    code = watching.follow(Watched(item(), LOADING, LOADING, DONE), [41])  # type: ignore[arg-type]
    assert code == 0
    assert capsys.readouterr().out.splitlines() == [
        "41 int4 base: Queued · next on its host",
        "41 int4 base: Loading · weights 29/64 (45 %)",
        "41 int4 base: Succeeded",
    ]


@pytest.mark.usefixtures("use_json")
def test_talk_goes_to_the_other_stream(capsys: pytest.CaptureFixture[str]) -> None:
    watching.follow(Watched(DONE), [41], to_stderr=True)  # type: ignore[arg-type]
    assert capsys.readouterr() == ("", "41 int4 base: Succeeded\n")


@pytest.mark.usefixtures("use_json")
@pytest.mark.parametrize("outcome", ["failed", "invalid", "cancelled"])
def test_one_that_did_not_succeed_is_told_by_the_exit_code(outcome: str) -> None:
    assert watching.follow(Watched(item(status="finished", outcome=outcome)), [41]) == 3  # type: ignore[arg-type]


def test_json_is_an_object_a_line(use_json: Callable[[], None], capsys: pytest.CaptureFixture[str]) -> None:
    use_json()
    watching.follow(Watched(item(), DONE), [41])  # type: ignore[arg-type]
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 2
    assert all(line.startswith('{"id": 41') for line in shown)


def test_what_is_redrawn() -> None:
    running = LOADING | {"facts": {"engine_version": "0.32.0"}, "steps": [step("clear", "20:00:00", "20:00:04")]}
    assert printed(watching._block(running)) == lines("""
        41 int4 base · vllm 0.32.0 · spec 9f3c1e2 · gpu-01 · -
        ✓ clear 4s  ○ launch  ○ load  ○ warm  ○ measure  ○ collect
        Loading · weights 29/64 (45 %)
    """)
    assert printed(watching._block(DONE)).splitlines()[-1] == "Succeeded"
