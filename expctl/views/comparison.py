"""A comparison as a table that people can read, 80 columns wide or wider.

Takes the JSON of a comparison or the record itself; imports nothing but rich and its like, so that the command line starts fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from expctl.views.fitting import Fitting

UNKNOWN = "-"
NO_CHANGE = "~"

STYLES = {
    "better": "bold green",
    "worse": "bold red",
    "no_difference_shown": "bold",
    "not_comparable": "bold yellow",
    "invalid": "bold yellow",
}
_OFF = {
    "off": "off",
    "never_drafted": "on, but it never drafted",
    "not_reported": "not reported by the engine",
    "unknown": "not known: the counters do not cover the span",
}
_GROUPS = {"tok/s": 1, "TTFT ms": 4, "TPOT ms": 7}
"""What is compared -> its first column in a row of `_cells`."""
PERCENTILES = ("p50", "p99")
"""Shown of those that there are."""
_TAILED = ("ttft_ms", "tpot_ms")
"""Figures whose percentiles are shown."""
_WIDE_MS = 10_000
NAME = 16
_LONG = 200
"""Of a value that all have: a set of prompts is one, too."""


def render(comparison: Any, base_name: str = "", candidate_name: str = "") -> RenderableType:
    """Names, what differs, the figures of each bench phase, the verdict in one sentence, warnings."""
    plain: Mapping[str, Any] = comparison if isinstance(comparison, Mapping) else comparison.model_dump(mode="json", by_alias=True)
    parts: list[RenderableType] = [
        Text(f"{side}  {plain[side.strip()]}  {name}".rstrip() + loads_text(plain, side.strip()), overflow="ellipsis", no_wrap=True)
        for side, name in (("baseline ", base_name), ("candidate", candidate_name))
    ]
    if plain.get("spec_differences"):
        parts.append(_differences(plain["spec_differences"]))
    if plain.get("spec_equal"):
        parts.append(equal_table(plain["spec_equal"]))
    for phase in plain.get("bench_phases") or []:
        parts += [Text(f"\nconcurrency {phase['concurrency']}", style="bold"), _prompts(phase), *_speculation(phase), *_drift(phase)]
    if any(row.get("tps") for phase in plain.get("bench_phases") or [] for row in phase["prompts"]):
        parts.append(Text(signs_text(plain["bench_phases"]), style="dim"))
    parts.append(_verdict(plain))
    parts += [bullet("why not: ", sentence) for sentence in plain.get("why_not") or []]
    parts += [bullet("warning: ", sentence) for sentence in plain.get("warnings") or []]
    parts += [bullet("to see more: ", sentence) for sentence in plain.get("advice") or []]
    return Group(*parts)


def loads_text(plain: Mapping[str, Any], side: str) -> str:
    """The experiments of a side that has more than one load."""
    found = plain.get("experiments") or {}
    loads, again = found.get(side) or [], (found.get("recheck") or []) if side == "baseline" else []
    if len(loads) + len(again) < 2:  # noqa: PLR2004 - one load is the experiment itself
        return ""
    after = f"; after the candidate {' '.join(map(str, again))}" if again else ""
    return f"  (loads: {' '.join(map(str, loads))}{after})"


def _differences(differences: Mapping[str, Sequence[Any]]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for title in ("differs in", "baseline", "candidate"):
        table.add_column(title, overflow="fold")
    for path, (old, new) in differences.items():
        table.add_row(*(Text(text) for text in (path, value_text(old), value_text(new))))
    return table


def equal_table(equal: Mapping[str, Any]) -> Table:
    """What no spec has otherwise."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for title in ("the same everywhere", "value"):
        table.add_column(title, overflow="fold")
    for path, value in equal.items():
        text = value_text(value)
        table.add_row(Text(path), Text(text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"))
    return table


def hidden_text(comparisons: Sequence[Mapping[str, Any]]) -> str:
    """What is not shown of the specs, and how to see it; empty where all of it is, or nothing is hidden."""
    counts = [one.get("equal_fields") or 0 for one in comparisons if one.get("spec_equal") is None]
    if not any(counts):
        return ""
    number_ = f"{counts[0]} equal field{'s' if counts[0] > 1 else ''}" if len(counts) == 1 else "equal fields"
    return f"{number_} hidden: --all-fields"


def value_text(value: Any) -> str:
    """A value of a spec, as a file would have it; `-` for what is not written."""
    if value is None:
        return UNKNOWN
    return str(value).lower() if isinstance(value, bool) else str(value)


def _prompts(phase: Mapping[str, Any]) -> Fitting:
    rows = [_cells(row) for row in phase["prompts"]]
    if phase.get("effect"):
        rows.append(["overall", "", "", _overall(phase["effect"]), *[""] * 6])
    rows += _percentiles(phase)
    last = len(phase["prompts"]) - 1
    return Fitting(_figures(rows, _GROUPS, last), Group(*(_figures(rows, {name: _GROUPS[name]}, last) for name in _GROUPS)))


def _figures(rows: list[list[str]], groups: Mapping[str, int], last: int) -> Table:
    """Some groups of figures, each with the place of its first column in a row; a line is drawn under the last prompt."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=0)
    table.add_column("\nprompt", no_wrap=True, min_width=max((len(row[0]) for row in rows), default=0))
    for group, first in groups.items():
        for n, word in enumerate(("base", "cand", "diff")):
            # Rich would shorten figures and names alike; only names may be cut, and `_cells` has done so.
            least = max((len(row[first + n]) for row in rows), default=0)
            title = group if n == 0 else ""
            # The group's name stands over all three of its columns, and one blank at least stands between two groups.
            table.add_column(f"{title}\n{word}", justify="right", no_wrap=True, min_width=max(least + 2 * (n == 0), len(title) + (n == 0)))
    for n, row in enumerate(rows):
        cells = [row[0], *(row[first + k] for first in groups.values() for k in range(3))]
        if n <= last or any(cells[1:]):
            table.add_row(*(Text(cell) for cell in cells), end_section=n == last)
    return table


def _cells(row: Mapping[str, Any]) -> list[str]:
    name, interval = str(row["prompt"]), row.get("tps_change_ci95")
    unsure = interval is not None and interval[0] <= 0 <= interval[1]
    short = name if len(name) <= NAME else f"{name[: NAME - 1]}…"
    return [short, *_trio(row["tps"], unsure=unsure), *_trio(row["ttft_ms"]), *_trio(row["tpot_ms"], unsure=unsure)]


def _percentiles(phase: Mapping[str, Any]) -> list[list[str]]:
    """The middle and the tail of all requests. What too few of them stand behind has no change."""
    found = phase.get("percentiles") or {}
    shown = [found.get(key) for key in _TAILED]
    if not any(shown):
        return []
    count = count_text([n for one in shown if one for n in one["n"]])
    trios = {name: [_percentile(one, name) for one in shown] for name in PERCENTILES}
    return [[f"{name}, {count}", "", "", "", *trios[name][0], *trios[name][1]] for name in PERCENTILES]


def _percentile(found: Mapping[str, Any] | None, name: str) -> list[str]:
    if found is None:
        return [UNKNOWN, UNKNOWN, ""]
    old, new, change = _trio(found[name])
    return [old, new, "" if name in found["few"] else change]


def count_text(counts: Sequence[int]) -> str:
    """How many values stand behind a percentile on each side: `n=25`, or `n=25-50`."""
    least, most = min(counts), max(counts)
    return f"n={least}" if least == most else f"n={least}-{most}"


def signs_text(phases: Sequence[Mapping[str, Any]], more: str = "") -> str:
    """What the signs of a table mean, and what is not to be read into it."""
    known = [one for phase in phases for key, one in (phase.get("percentiles") or {}).items() if key in _TAILED]
    intervals = "changes of TTFT and of percentiles carry no interval" if known else "changes of TTFT carry no interval"
    few = any("p99" in one["few"] for one in known)
    tail = "; a p99 of n<100 is hardly more than the slowest request, so it has no change" if few else ""
    return f"{NO_CHANGE} no change shown (95 %); {more}{intervals}{tail}"


def _overall(effect: Mapping[str, Any]) -> str:
    interval = effect.get("ci95")
    return NO_CHANGE if interval is None or interval[0] <= 1 <= interval[1] else percent(effect["tps_ratio"] - 1)


def _trio(pair: Sequence[float | None], *, unsure: bool = False) -> list[str]:
    old, new = pair
    change = UNKNOWN if not old or new is None else percent(new / old - 1)
    return [number(old), number(new), NO_CHANGE if unsure and change != UNKNOWN else change]


def number(value: float | None) -> str:
    """A figure in six characters or fewer; `-` for one that is not known."""
    if value is None:
        return UNKNOWN
    if value >= _WIDE_MS:
        return f"{value / 1000:.1f}k"
    return f"{value:.1f}" if abs(value) < 1000 else f"{value:.0f}"  # noqa: PLR2004


def percent(change: float) -> str:
    """A ratio less 1, such as +3.2%, -26% or, from tenfold on, 142x."""
    rounded = round(100 * change, 1) + 0.0
    if rounded >= 900:  # noqa: PLR2004
        return f"{1 + change:.0f}x"
    return f"{rounded:+.1f}%" if abs(rounded) < 10 else f"{rounded:+.0f}%"  # noqa: PLR2004


def _speculation(phase: Mapping[str, Any]) -> list[Text]:
    """What speculation did on each side that has any, and where it would break even."""
    result = []
    found = phase.get("speculation") or {}
    statuses = {(found.get(side) or {}).get("status", "not_reported") for side in ("baseline", "candidate")}
    if statuses in ({"off"}, {"not_reported"}):
        return []
    for side in ("baseline", "candidate"):
        spec = found.get(side) or {"status": "not_reported"}
        result.append(bullet(f"speculation, {side}: ", _speculation_words(spec)))
    rows = [row for row in phase["prompts"] if row.get("break_even_tokens_per_step") is not None]
    if rows:
        listed = "; ".join(f"{row['prompt']} {row['break_even_tokens_per_step']:.2f} (has {row['tokens_per_step']:.2f})" for row in rows)
        result.append(bullet("break-even tokens per step: ", listed))
    return result


def _drift(phase: Mapping[str, Any]) -> list[Text]:
    """The baseline before and after the candidate, where it was measured again."""
    drift = phase.get("drift")
    if not drift:
        return []
    interval = drift.get("ci95")
    span = f" (95 % interval {_points(interval[0] - 1)} to {_points(interval[1] - 1)})" if interval else ""
    said = "the host drifted" if drift["shown"] else "no drift of the host is shown"
    return [bullet("baseline measured again: ", f"{_points(drift['tps_ratio'] - 1)}{span}, {said}")]


def _speculation_words(spec: Mapping[str, Any]) -> str:
    if spec.get("status") != "on":
        return _OFF.get(str(spec.get("status")), str(spec.get("status")))
    parts = []
    if spec.get("mean_acceptance_length") is not None:
        parts.append(f"mean acceptance length {spec['mean_acceptance_length']:.2f}")
    if spec.get("effective_tokens_per_step") is not None:
        parts.append(f"effective tokens per step {spec['effective_tokens_per_step']:.2f}")
    if spec.get("draft_coverage") is not None:
        parts.append(f"{100 * spec['draft_coverage']:.0f} % of steps had a draft")
    if spec.get("per_position_acceptance"):
        parts.append("accepted by position " + " ".join(f"{100 * share:.0f}%" for share in spec["per_position_acceptance"]))
    return ", ".join(parts) or "on"


def _verdict(plain: Mapping[str, Any]) -> Text:
    text = Text("\n")
    text.append(verdict_sentence(plain), style=STYLES.get(str(plain["verdict"]), "bold"))
    for phase in (plain.get("bench_phases") or [])[1:]:
        text.append(f"\nat concurrency {phase['concurrency']}: {phase_sentence(phase)}")
    return text


def verdict_sentence(comparison: Mapping[str, Any]) -> str:
    """The verdict in one plain sentence, from the JSON of a comparison."""
    phases = comparison.get("bench_phases") or []
    verdict = str(comparison["verdict"])
    if verdict in {"not_comparable", "invalid"} or not phases:
        why = comparison.get("why_not" if verdict == "not_comparable" else "warnings") or []
        return ": ".join([verdict.replace("_", " "), *why[:1]])
    return phase_sentence(phases[0])


def phase_sentence(phase: Mapping[str, Any]) -> str:
    """Such as: worse: 21 % slower (95 % interval -25 % to -17 %), one load each; between-load sd 1.5 % assumed."""
    effect, verdict = phase.get("effect"), str(phase["verdict"])
    if not effect or verdict not in STYLES or verdict in {"not_comparable", "invalid"}:
        return verdict.replace("_", " ")
    change, interval = effect["tps_ratio"] - 1, effect.get("ci95")
    if interval is None:
        return f"no difference shown: measured {_points(change)}, but how sure that is cannot be said"
    span = f"95 % interval {_points(interval[0] - 1)} to {_points(interval[1] - 1)}"
    if verdict == "no_difference_shown":
        shown = _points(effect["smallest_detectable"]).removeprefix("+")
        return f"no difference shown (measured {_points(change)}, {span}); this run could have shown {shown} or more; {_certainty(phase)}"
    size = _points(abs(change)).removeprefix("+")
    return f"{verdict}: {size} {'faster' if change > 0 else 'slower'} ({span}), {_certainty(phase)}"


def _certainty(phase: Mapping[str, Any]) -> str:
    """What the interval stands on."""
    sd = phase["effect"]["between_load_sd"]
    source = "assumed" if sd["from"] == "assumed" else f"from this host's history, {sd['n']} degrees of freedom"
    between = f"between-load sd {100 * sd['value']:.1f} % {source}"
    old, new = phase.get("loads") or (None, None)
    if old is None:
        return between
    loads = f"{'one load' if old == 1 else f'{old} loads'} each" if old == new else f"{old} and {new} loads"
    return f"{loads}; {between}"


def _points(change: float) -> str:
    """A change in words' form: +3.2 %, -26 %."""
    return percent(change).replace("%", " %")


def bullet(title: str, sentence: str) -> Text:
    """A sentence behind what it is about."""
    return Text.assemble((title, "bold"), sentence)
