from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from expctl.views.columns import side_by_side
from expctl.views.comparison import hidden_text, render
from tests.unit.views.test_comparison_view import effect, flat, story

NAMES = {41: "int4 base", 42: "ngram k=5", 43: "ngram k=3", 44: "other host"}


def other(number: int = 43, **more: Any) -> dict[str, Any]:
    """Another candidate of the same baseline, faster than it."""
    made = story(candidate=number, warnings=[], verdict="better", spec_differences={"engine.speculative.method": [None, "eagle3"]})
    made["bench_phases"][0] |= {"verdict": "better", "effect": effect(1.2, 1.1, 1.3)}
    return made | more


def printed(comparisons: list[dict[str, Any]], width: int = 140) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(side_by_side(comparisons, NAMES))
    return out.getvalue()


def rows(text: str, start: str) -> list[str]:
    return [flat(line) for line in text.splitlines() if flat(line).startswith(start)]


def test_the_findings_come_first_and_the_figures_stand_side_by_side() -> None:
    text = printed([story(), other()])
    first, *_ = text.splitlines()
    assert first.startswith("42  ngram k=5: worse: 21 % slower (95 % interval -25 % to -17 %)")
    assert "43  ngram k=3: better: 20 % faster" in text.partition("differs in")[0]
    assert rows(text, "41 baseline") == ["41 baseline 42 43"]
    assert rows(text, "speculative.method") == ["speculative.method - ngram eagle3"]
    assert rows(text, "args.x") == ["args.x true 5 true"], "who names no difference has the baseline's value"
    assert rows(text, "output tok/s") == ["output tok/s 70.1 55.0 55.0", "output tok/s 400.0 401.0 401.0"]
    assert rows(text, "decode tok/s, all") == [
        "decode tok/s, all prompts -21% [-25, -17] +20% [+10, +30]",
        "decode tok/s, all prompts ~ [-3.0, +4.0] ~ [-3.0, +4.0]",
    ]
    assert rows(text, "code")[:3] == [
        "code 62.6 46.4 -26% [-29, -22] 46.4 -26% [-29, -22]",
        "code 16.0 21.6 +35% 21.6 +35%",
        "code 212.0 30.1k 142x 30.1k 142x",
    ]
    assert rows(text, "explanation")[0] == "explanation 78.0 78.4 ~ [-4.0, +5.0] 78.4 ~ [-4.0, +5.0]"
    assert rows(text, "maths")[0] == "maths - 64.8 64.8"
    assert rows(text, "accepted length")[0] == "accepted length - 2.33 2.33"
    assert rows(text, "by position")[0] == "by position, % - 56 31 20 15 13 56 31 20 15 13"
    assert "code 3.15 (has 2.33) 3.15 (has 2.33)" in rows(text, "code")
    assert text.index("concurrency 1 ") < text.index("\n concurrency 8 ")


def test_a_sentence_is_said_once_with_those_that_it_is_about() -> None:
    both, one = "the clock was throttled", "2 requests failed"
    text = flat(printed([story(warnings=[both, one]), other(warnings=[both])]))
    assert f"warning: {both} warning, 42: {one}" in text
    assert text.count(both) == 1


def test_where_there_is_no_verdict_there_is_no_change() -> None:
    refused = other(44, verdict="not_comparable", why_not=["the host differs"], warnings=[])
    for phase in refused["bench_phases"]:
        phase |= {"verdict": "not_comparable", "effect": None}
    text = printed([story(), refused])
    assert "44  other host: not comparable: the host differs" in text
    assert rows(text, "decode tok/s, all")[0] == "decode tok/s, all prompts -21% [-25, -17] not comparable"
    assert rows(text, "code")[:3] == ["code 62.6 46.4 -26% [-29, -22] 46.4", "code 16.0 21.6 +35% 21.6", "code 212.0 30.1k 142x 30.1k"]


def test_a_level_that_one_did_not_measure_is_not_known_of_it() -> None:
    text = printed([story(), other(bench_phases=other()["bench_phases"][:1])])
    assert rows(text, "output tok/s")[1] == "output tok/s 400.0 401.0 -"
    assert rows(text, "speculation") == ["speculation off on on", "speculation off on -"]


def test_how_sure_a_change_is_may_not_be_known() -> None:
    unsure = other(verdict="no_difference_shown")
    unsure["bench_phases"][0] |= {"verdict": "no_difference_shown", "effect": effect(1.5, None, None)}
    assert rows(printed([story(), unsure]), "decode tok/s, all")[0] == "decode tok/s, all prompts -21% [-25, -17] ~"


def test_a_baseline_that_was_measured_again_for_one_of_them_is_said() -> None:
    again = story(experiments={"baseline": [41], "recheck": [45], "candidate": [42]})
    again["bench_phases"][0]["drift"] = {"tps_ratio": 0.9, "ci95": [0.86, 0.94], "shown": True}
    text = printed([again, other(experiments={"baseline": [41], "recheck": [], "candidate": [43]})])
    assert rows(text, "baseline measured again") == ["baseline measured again -10% [-14, -6.0] -"]
    assert "baseline: its column is that of 42; every change is against the loads that belong to its own candidate" in flat(text)
    assert "its column" not in printed([story(), other()])


def test_paths_are_cut_to_what_tells_them_apart() -> None:
    alike = {"engine.args.long-name": [1, 2], "engine.env.long-name": ["1", "2"], "engine.env.NCCL_ALGO": [None, "Ring"]}
    text = printed([story(spec_differences=alike), other()])
    assert [*rows(text, "args.long-name"), *rows(text, "env.long-name"), *rows(text, "NCCL_ALGO")] == [
        "args.long-name 1 2 1",
        "env.long-name 1 2 1",
        "NCCL_ALGO - Ring -",
    ]


@pytest.mark.parametrize("width", [40, 80])
def test_on_a_narrow_screen_one_comparison_stands_below_the_other(width: int) -> None:
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False)
    for one in (story(), other()):
        console.print(render(one, NAMES[41], NAMES[one["candidate"]]))
    assert printed([story(), other()], width) == out.getvalue()


def test_it_fits_and_no_figure_is_cut_however_long_texts_are() -> None:
    long = story(spec_differences={"engine.args." + "x" * 90: ["y" * 200, ["w" * 90]]}, warnings=["[red]" + "w " * 200])
    long["bench_phases"][0]["prompts"][0]["prompt"] = "a-prompt-with-a-very-long-name-" * 4
    text = printed([long, other()], 120)
    assert rows(text, "41 baseline"), "texts are folded, so that the columns fit"
    assert max(len(line) for line in text.splitlines()) <= 120
    assert "[red]" in text
    assert "a-prompt-with-a…" in text


def tails(n: list[int], few: list[str]) -> dict[str, Any]:
    figure = {"n": n, "p50": [202.0, 404.0], "p90": [300.0, 600.0], "p99": [400.0, 800.0], "few": few}
    return {"ttft_ms": figure, "itl_ms": figure | {"few": ["p99"]}}


def test_percentiles_stand_below_the_means_with_the_number_behind_them() -> None:
    one, two = story(), other()
    one["bench_phases"][0]["percentiles"] = tails([25, 50], ["p99"])
    two["bench_phases"][0]["percentiles"] = tails([25, 100], [])
    text = printed([one, two])
    assert rows(text, "all prompts, p50") == ["all prompts, p50 (n=25-100) 202.0 404.0 +100% 404.0 +100%"]
    assert rows(text, "all prompts, p99") == ["all prompts, p99 (n=25-100) 400.0 800.0 800.0 +100%"]
    assert "a p99 of n<100 is hardly more than the slowest request" in flat(text)
    one["bench_phases"][0]["percentiles"] = tails([100, 100], [])
    text = flat(printed([one, two]))
    assert "changes of TTFT and of percentiles carry no interval" in text
    assert "slowest request" not in text, "gaps are not shown"


def test_what_all_have_in_common_is_shown_where_it_was_asked_for() -> None:
    one = story(spec_equal={"engine.kind": "vllm", "bench.repeat": 5})
    two = other(spec_equal={"engine.kind": "vllm", "bench.prompts": "x" * 300})
    text = printed([one, two])
    assert rows(text, "engine.kind") == ["engine.kind vllm"]
    assert not rows(text, "bench."), "not the same in all columns"
    assert "the same everywhere" not in printed([story(), other()])


@pytest.mark.parametrize(
    ("found", "hint"),
    [
        ([{"equal_fields": 31, "spec_equal": None}], "31 equal fields hidden: --all-fields"),
        ([{"equal_fields": 1, "spec_equal": None}], "1 equal field hidden: --all-fields"),
        ([{"equal_fields": 3, "spec_equal": None}] * 2, "equal fields hidden: --all-fields"),
        ([{"equal_fields": 3, "spec_equal": {"a": 1}}], ""),
        ([{"equal_fields": 0}], ""),
    ],
)
def test_it_is_said_that_something_is_hidden(found: list[dict[str, Any]], hint: str) -> None:
    assert hidden_text(found) == hint
