"""The grid of a comparison, and its files: percentiles with what stands behind them."""

from __future__ import annotations

import csv
import io

from service.domain.comparison import Comparison, compare
from service.pages.grid import Line, grid
from service.pages.grid_files import OF_ALL, as_csv, as_markdown
from tests.unit.domain.arms import arm, phase, request

NAMES = {1: "base", 2: "candidate", 3: "other"}


def compared(candidate: int = 2, times: int = 25, ttft_s: float = 0.4) -> Comparison:
    sides = [
        arm([phase([request("code", speed, n, ttft_s=first) for n in range(times)])], experiment=number)
        for number, speed, first in ((1, 50.0, 0.2), (candidate, 80.0, ttft_s))
    ]
    return compare(*sides)


def lines(*found: Comparison) -> dict[str, Line]:
    return {line.name: line for section in grid(found, NAMES).sections for line in section.lines}


def test_the_middle_has_a_change_and_a_tail_of_few_has_none() -> None:
    shown = lines(compared())
    middle, tail = shown["TTFT ms, p50 of all prompts (n=25)"], shown["TTFT ms, p99 of all prompts (n=25)"]
    assert [cell.text for cell in middle.cells] == [cell.text for cell in tail.cells] == ["200.0", "400.0"]
    assert (middle.cells[1].change, middle.cells[1].tone) == ("+100.0\N{NO-BREAK SPACE}%", "bad")
    assert (tail.cells[1].change, tail.cells[1].tone) == ("", "")
    assert shown["TPOT ms, p50 of all prompts (n=25)"].cells[1].tone == "good"


def test_a_tail_of_enough_has_one() -> None:
    assert lines(compared(times=100))["TTFT ms, p99 of all prompts (n=100)"].cells[1].change == "+100.0\N{NO-BREAK SPACE}%"


def test_candidates_that_were_measured_more_often_are_named_together() -> None:
    shown = lines(compared(), compared(3, times=50))
    assert [cell.text for cell in shown["TTFT ms, p99 of all prompts (n=25-50)"].cells] == ["200.0", "400.0", "400.0"]


def test_files_have_them_too() -> None:
    found = compared()
    text = as_csv([found], NAMES)
    rows = list(csv.DictReader(line for line in io.StringIO(text) if not line.startswith("#")))
    prompt, every = rows
    assert (every["prompt"], every["ttft_ms_n_candidate"], every["ttft_ms_p99_candidate"]) == ("(all prompts)", "25", "400")
    assert (prompt["ttft_ms_p99_candidate"], every["itl_ms_p50_baseline"]) == ("", "")
    assert {f"{name}_{side}" for name in OF_ALL for side in ("baseline", "candidate")} < set(every)
    assert "# p50, p90, p99: " in text
    markdown = as_markdown(grid([found], NAMES))
    assert "| TTFT ms, p50 of all prompts (n=25) | 200.0 | 400.0 +100.0 % |" in markdown
    assert "| TTFT ms, p99 of all prompts (n=25) | 200.0 | 400.0 |" in markdown


def test_a_level_without_an_effect_has_its_line_all_the_same() -> None:
    broken = arm([phase([request("code", 50.0, ttft_s=0.2), request("code", None, 1, ok=False)])], experiment=2)
    found = compare(arm([phase([request("code", 50.0)])]), broken)
    rows = list(csv.DictReader(line for line in io.StringIO(as_csv([found], NAMES)) if not line.startswith("#")))
    assert (found.verdict, rows[-1]["prompt"], rows[-1]["tps_change"], rows[-1]["ttft_ms_n_candidate"]) == (
        "invalid",
        "(all prompts)",
        "",
        "1",
    )
