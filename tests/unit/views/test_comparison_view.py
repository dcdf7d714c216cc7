from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import pytest
from rich.console import Console

from expctl.views.comparison import render, verdict_sentence
from service.domain.comparison import Comparison


def effect(ratio: float, low: float | None, high: float | None, source: str = "assumed") -> dict[str, Any]:
    sd = {"value": 0.015, "from": source, "n": 0 if source == "assumed" else 6}
    interval = None if low is None else [low, high]
    return {"tps_ratio": ratio, "ci95": interval, "smallest_detectable": None if low is None else 0.042, "between_load_sd": sd}


def row(prompt: str, tps: list[float | None], interval: list[float] | None, **more: Any) -> dict[str, Any]:
    change = None if not tps[0] or tps[1] is None else tps[1] / tps[0] - 1
    base = {"prompt": prompt, "tps": tps, "tps_change": change, "tps_change_ci95": interval}
    base |= {"ttft_ms": [212.0, 30123.0], "tpot_ms": [16.0, 21.6], "tokens_per_step": None}
    return base | {"step_time_ratio": None, "break_even_tokens_per_step": None} | more


ON = {
    "status": "on",
    "mean_acceptance_length": 2.33,
    "effective_tokens_per_step": 1.71,
    "draft_coverage": 0.53,
    "per_position_acceptance": [0.56, 0.31, 0.2, 0.15, 0.13],
}


def story(**more: Any) -> dict[str, Any]:
    rows = [
        row("code", [62.6, 46.4], [-0.29, -0.22], tokens_per_step=2.33, step_time_ratio=3.146, break_even_tokens_per_step=3.146),
        row("explanation", [78.0, 78.4], [-0.04, 0.05]),
        row("maths", [None, 64.8], None),
    ]
    phases = [
        {
            "concurrency": 1,
            "verdict": "worse",
            "effect": effect(0.79, 0.75, 0.83),
            "prompts": rows,
            "output_tps": [70.1, 55.0],
            "loads": [1, 1],
        },
        {
            "concurrency": 8,
            "verdict": "no_difference_shown",
            "effect": effect(1.004, 0.97, 1.04),
            "prompts": rows,
            "output_tps": [400, 401],
        },
    ]
    for phase in phases:
        phase["speculation"] = {"baseline": {"status": "off"}, "candidate": ON}
    return {
        "schema": "expctl.comparison/1", "baseline": 41, "candidate": 42, "comparable": True, "why_not": [], "verdict": "worse",
        "bench_phases": phases, "spec_differences": {"engine.speculative.method": [None, "ngram"], "engine.args.x": [True, 5]},
        "warnings": ["the baseline is 15 days old; measure it again"], "advice": [],
    } | more  # fmt: skip


def printed(comparison: Any, width: int = 80, base: str = "int4 base", candidate: str = "int4 ngram k=5", *, color: bool = False) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=color, color_system="truecolor" if color else None, highlight=False).print(
        render(comparison, base, candidate)
    )
    return out.getvalue()


def flat(text: str) -> str:
    return " ".join(text.split())


def test_the_story_reads_as_a_person_would_tell_it() -> None:
    text = flat(printed(story(), 120))
    assert "baseline 41 int4 base candidate 42 int4 ngram k=5" in text
    assert "engine.speculative.method - ngram" in text
    assert "engine.args.x true 5" in text
    assert "code 62.6 46.4 -26% 212.0 30.1k 142x 16.0 21.6 +35%" in text
    assert "explanation 78.0 78.4 ~ 212.0" in text
    assert "maths - 64.8 - 212.0" in text
    assert "worse: 21 % slower (95 % interval -25 % to -17 %), one load each; between-load sd 1.5 % assumed" in text
    assert (
        "at concurrency 8: no difference shown (measured +0.4 %, 95 % interval -3.0 % to +4.0 %); this run could have shown 4.2 % or more"
        in text
    )
    assert "mean acceptance length 2.33, effective tokens per step 1.71, 53 % of steps had a draft" in text
    assert "accepted by position 56% 31% 20% 15% 13%" in text
    assert "break-even tokens per step: code 3.15 (has 2.33)" in text
    assert "warning: the baseline is 15 days old" in text


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
def test_it_fits(width: int) -> None:
    long = story()
    long["bench_phases"][0]["prompts"][0]["prompt"] = "a-prompt-with-a-very-long-name-" * 4
    long["spec_differences"] = {"engine.args." + "x" * 90: ["y" * 200, {"z": ["w" * 90]}]}
    text = printed(long, width, "n" * 300, "m" * 300)
    assert max(len(line) for line in text.splitlines()) <= width
    for figure in ("62.6", "46.4", "-26%", "30.1k", "142x", "21.6", "+35%"):
        assert figure in text, "a figure is never cut"


@pytest.mark.parametrize(("width", "tables"), [(80, 1), (60, 3), (40, 3)])
def test_on_a_narrow_screen_what_is_compared_stands_below_one_another(width: int, tables: int) -> None:
    phase = printed(story(bench_phases=story()["bench_phases"][:1]), width)
    assert sum(line.split()[:1] == ["prompt"] for line in phase.splitlines()) == tables
    assert flat(phase).count("base cand diff") == 3


def test_colour_never_carries_meaning_alone() -> None:
    import re  # noqa: PLC0415

    coloured = printed(story(), color=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == printed(story())


def test_names_are_text_not_markup() -> None:
    wild = story(warnings=["[bold]x[/nope]"], spec_differences={"[red]": ["[/]", "a"]})
    text = printed(wild, 120, "[link=x]", "[/red]")
    for name in ("[link=x]", "[/red]", "[bold]x[/nope]", "[red]", "[/]"):
        assert name in text


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"verdict": "not_comparable", "why_not": ["the host differs: a and b"]}, "not comparable: the host differs: a and b"),
        ({"verdict": "invalid", "warnings": ["2 requests failed"], "bench_phases": []}, "invalid: 2 requests failed"),
        ({"verdict": "invalid", "warnings": [], "bench_phases": []}, "invalid"),
    ],
)
def test_refused_verdicts_say_why(change: dict[str, Any], sentence: str) -> None:
    refused = story(**change)
    for phase in refused["bench_phases"]:
        phase |= {"effect": None, "verdict": change["verdict"]}
    assert verdict_sentence(refused) == sentence
    assert sentence in flat(printed(refused))


def test_verdict_sentences() -> None:
    better = story(verdict="better")
    better["bench_phases"][0] |= {"verdict": "better", "effect": effect(1.123, 1.05, 1.2, "history"), "loads": [2, 1]}
    expected = "better: 12 % faster (95 % interval +5.0 % to +20 %), 2 and 1 loads; between-load sd 1.5 % from this host's history"
    assert verdict_sentence(better) == f"{expected}, 6 degrees of freedom"
    unsure = story(verdict="no_difference_shown")
    unsure["bench_phases"][0] |= {"verdict": "no_difference_shown", "effect": effect(0.5, None, None)}
    assert verdict_sentence(unsure) == "no difference shown: measured -50 %, but how sure that is cannot be said"


@pytest.mark.parametrize(
    ("status", "words"),
    [("never_drafted", "on, but it never drafted"), ("not_reported", "not reported by the engine"), ("unknown", "do not cover the span")],
)
def test_speculation_without_figures_is_words_not_zero(status: str, words: str) -> None:
    plain = story()
    for phase in plain["bench_phases"]:
        phase["speculation"] = {"baseline": {"status": "off"}, "candidate": {"status": status}}
    text = flat(printed(plain, 120))
    assert words in text
    assert "acceptance length" not in text


def test_takes_the_record_as_well() -> None:
    plain = story()
    for phase in plain["bench_phases"]:
        phase["loads"] = [1, 1]
    assert printed(Comparison.model_validate(plain)) == printed(plain)


def test_import_is_light() -> None:
    code = "import sys, expctl.views.comparison; sys.exit(any(m.split('.')[0] in {'pydantic', 'service'} for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("drift", "says"),
    [
        (
            {"tps_ratio": 1.005, "ci95": [0.97, 1.04], "shown": False},
            "+0.5 % (95 % interval -3.0 % to +4.0 %), no drift of the host is shown",
        ),
        ({"tps_ratio": 0.9, "ci95": [0.86, 0.94], "shown": True}, "-10 % (95 % interval -14 % to -6.0 %), the host drifted"),
        ({"tps_ratio": 0.9, "ci95": None, "shown": False}, "-10 %, no drift of the host is shown"),
    ],
)
def test_a_second_look_at_the_baseline_is_shown(drift: dict[str, Any], says: str) -> None:
    told = story()
    told["bench_phases"][0]["drift"] = drift
    assert f"baseline measured again: {says}" in flat(printed(told))
    assert "measured again:" not in printed(story())


def test_percentiles_of_all_requests_stand_below_the_prompts() -> None:
    found = story()
    found["bench_phases"][0]["percentiles"] = {
        "ttft_ms": {"n": [25, 25], "p50": [202.0, 303.0], "p90": [0, 0], "p99": [412.0, 409.0], "few": ["p99"]},
        "tpot_ms": {"n": [25, 0], "p50": [16.0, None], "p90": [0, None], "p99": [20.0, None], "few": ["p50", "p90", "p99"]},
    }
    text = flat(printed(found))
    assert "p50, n=0-25 202.0 303.0 +50% 16.0 - p99, n=0-25 412.0 409.0 20.0 -" in text
    assert "a p99 of n<100 is hardly more than the slowest request, so it has no change" in text
    assert "p50" not in printed(story())


def test_what_is_the_same_is_shown_where_it_was_asked_for() -> None:
    text = flat(printed(story(spec_equal={"engine.kind": "vllm", "bench.prompts": ["y" * 300]})))
    assert "the same everywhere value" in text
    assert "engine.kind vllm" in text
    assert text.count("y") < 300
    assert "…" in text
