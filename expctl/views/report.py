"""A night as one would write it down, in Markdown: the finding first, then what was tried, the evidence, failures, and what to try next.

Every figure is one of the API's answer; nothing is computed here but a change in percent from a ratio.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from expctl.views.comparison import phase_sentence, verdict_sentence
from expctl.views.night import change

Json = dict[str, Any]
Rows = Sequence[Sequence[str]]

UNKNOWN = "-"
DIFFERENCES = 3
"""Differences of the specs that a row of the table names."""
_OUTCOMES = {"succeeded": "done", "failed": "failed", "invalid": "invalid", "cancelled": "cancelled"}
_VERDICTS = {"no_difference_shown": "no difference shown", "not_comparable": "not comparable"}
MINUTE_S, HOUR_MIN = 60, 60
NOT_BACK = "NOT RESTORED"
"""How a host's production is told of that could not be brought back."""
_MARKS = re.compile(r"[|*`<>\[\]]|(?<!\w)_|_(?!\w)")
"""What Markdown takes for its own; a line between letters it leaves alone."""


def markdown(found: Json) -> str:
    """From the API's report; ends with a line's end."""
    parts = [_title(found), *_finding(found)]
    if found["ended"]:
        parts += ["## What was tried", _table(found["ended"])]
    evidence = [part for one in found["ended"] if one["comparison"] for part in _evidence(one)]
    parts += ["## Evidence", *evidence] if evidence else []
    parts += ["## What failed", *_failures(found)] if found["failures"] else []
    parts += ["## Production", _bullets(_production(found["production"]))] if found["production"] else []
    parts += ["## What to try next", _bullets(found["next"])] if found["next"] else []
    return "\n\n".join(parts) + "\n"


def _title(found: Json) -> str:
    begin = datetime.fromisoformat(found["since"]).astimezone()
    places = ", ".join(found["hosts"])
    return f"# Night of {found['label'] or f'{begin.day} {begin:%b}'}" + (f" on {places}" if places else "")


def _finding(found: Json) -> Iterator[str]:
    out = [f"{one['host']}, {one['text']}" for one in found["production"] if not one["proven"]]
    if any(NOT_BACK in text for text in out):
        yield f"**PRODUCTION IS NOT RESTORED: {'; '.join(out)}.**"
    compared = [one for one in found["ended"] if one["comparison"]]
    better = [one for one in compared if one["comparison"]["verdict"] == "better"]
    if better:
        top = better[0]
        yield f"**{_named(top)} is {verdict_sentence(top['comparison'])}; the baseline is {top['comparison']['baseline']}.**"
    elif compared:
        yield "**Nothing was shown to be better than its baseline.**"
    elif found["ended"]:
        yield "**Nothing was compared with a baseline.**"
    yield _cost(found)


def _cost(found: Json) -> str:
    begin, end = (datetime.fromisoformat(found[key]).astimezone() for key in ("since", "until"))
    outcomes = ", ".join(f"{found['outcomes'][key]} {word}" for key, word in _OUTCOMES.items() if found["outcomes"].get(key))
    parts = [f"{outcomes or 'Nothing ended'} from {begin:%d %b %H:%M} to {end:%d %b %H:%M}"]
    if found["gpu_s"] is not None:
        unknown = f" (without {found['gpus_unknown']} whose GPUs are not known)" if found["gpus_unknown"] else ""
        parts.append(f"{_span(found['gpu_s'])} GPU time{unknown}")
    if found["loads"]:
        parts.append(f"{found['loads']} load{'' if found['loads'] == 1 else 's'}")
    parts += [f"{found['waiting']} still wait{'s' if found['waiting'] == 1 else ''}"] if found["waiting"] else []
    return "; ".join(parts) + "."


def _table(ended: Sequence[Json]) -> str:
    head = (
        "ID",
        "Experiment",
        "What differs from the baseline",
        "Verdict",
        "Change of tok/s",
        "95 % interval",
        "tok/s",
        "Accepted",
        "Took",
    )
    bases = {one["comparison"]["baseline"] for one in ended if one["comparison"]}
    return _markdown_table(head, [_row(one, bases) for one in ended], right={0, 4, 6, 7, 8})


def _row(one: Json, bases: set[int]) -> list[str]:
    item, numbers, compared = one["experiment"], one["numbers"], one["comparison"]
    effect = _effect(compared)
    accepted = numbers["mean_acceptance_length"]
    return [
        str(item["id"]),
        _name(item),
        _differences(compared["spec_differences"]) if compared else UNKNOWN,
        _verdict(one, bases),
        change(effect["tps_ratio"]) if effect else UNKNOWN,
        _interval(effect) if effect else UNKNOWN,
        _number(numbers["tps"] if numbers["tps"] is not None else numbers["output_tps"]),
        f"{accepted:.2f}" if accepted is not None else UNKNOWN,
        _took(item),
    ]


def _verdict(one: Json, bases: set[int]) -> str:
    item, compared = one["experiment"], one["comparison"]
    if item["outcome"] != "succeeded":
        return str(item["status_text"]).partition(":")[0]
    if compared is None:
        return str(one["not_compared"]) or ("the baseline" if item["id"] in bases else "no baseline")
    verdict = str(compared["verdict"])
    return f"{_VERDICTS.get(verdict, verdict)} vs {compared['baseline']}"


def _effect(compared: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    phases = compared["bench_phases"] if compared else []
    return phases[0]["effect"] if phases else None


def _interval(effect: Mapping[str, Any]) -> str:
    interval = effect["ci95"]
    return f"{change(interval[0])} to {change(interval[1])}" if interval else UNKNOWN


def _differences(found: Mapping[str, Sequence[Any]]) -> str:
    named = [f"{path.removeprefix('engine.')}: {_value(new)}" for path, (_, new) in found.items()]
    more = f" and {len(named) - DIFFERENCES} more" if len(named) > DIFFERENCES else ""
    return "; ".join(named[:DIFFERENCES]) + more if named else "nothing"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_value(inner)}" for key, inner in value.items() if inner is not None)
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _evidence(one: Json) -> Iterator[str]:
    compared = one["comparison"]
    yield f"### {_named(one)} against {compared['baseline']}"
    sentences = [f"Concurrency {phase['concurrency']}: {phase_sentence(phase)}." for phase in compared["bench_phases"]]
    sentences += [f"Not comparable: {why}." for why in compared["why_not"]]
    sentences += [f"Warning: {warning}." for warning in compared["warnings"]]
    yield _bullets(sentences)
    for phase in compared["bench_phases"]:
        if any(row["tps"][1] is not None for row in phase["prompts"]):
            yield _prompts(phase)
        if said := _speculation(phase["speculation"].get("candidate")):
            yield said


def _prompts(phase: Json) -> str:
    head = (f"Prompt, at concurrency {phase['concurrency']}", "tok/s", "was", "change", "TPOT ms", "was", "TTFT ms", "was")
    rows = [
        [
            row["prompt"],
            _number(row["tps"][1]),
            _number(row["tps"][0]),
            _percent(row["tps_change"]),
            *(_number(value, digits) for key, digits in (("tpot_ms", 1), ("ttft_ms", 0)) for value in reversed(row[key])),
        ]
        for row in phase["prompts"]
    ]
    return _markdown_table(head, rows, right=set(range(1, 8)))


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else change(1 + value)


def _speculation(spec: Mapping[str, Any] | None) -> str:
    if spec is None or spec["status"] in {"off", "not_reported"}:
        return ""
    if spec["status"] != "on":
        return f"Speculation: {str(spec['status']).replace('_', ' ')}."
    parts = [
        f"mean acceptance length {spec['mean_acceptance_length']:.2f}" if spec["mean_acceptance_length"] is not None else "",
        f"{spec['effective_tokens_per_step']:.2f} tokens per step" if spec["effective_tokens_per_step"] is not None else "",
        "accepted by position " + " ".join(f"{100 * share:.0f} %" for share in spec["per_position_acceptance"])
        if spec["per_position_acceptance"]
        else "",
    ]
    return f"Speculation: {', '.join(part for part in parts if part) or 'on'}."


def _failures(found: Json) -> Iterator[str]:
    known = {one["experiment"]["id"]: one["experiment"] for one in found["ended"]}
    for cause in found["failures"]:
        ids = ", ".join(map(str, cause["ids"]))
        yield f"**{cause['sentence'][:1].upper()}{cause['sentence'][1:]}** (`{cause['reason']}`): {ids}."
        latest = known.get(cause["ids"][-1], {})
        lines = [text for text in (latest.get("detail"), latest.get("evidence")) if text]
        if lines:
            yield "\n".join(f"    {line}" for text in lines for line in str(text).splitlines())
        yield f"What to do: {cause['remedy']}."


def _production(hosts: Sequence[Json]) -> list[str]:
    return [f"{one['host']}: {one['text']}." for one in hosts]


def _named(one: Json) -> str:
    return f"{one['experiment']['id']} {_escaped(_name(one['experiment']))}"


def _name(item: Json) -> str:
    return f"{item['name']} ({item['load_text']})" if item["load_text"] else str(item["name"])


def _took(item: Json) -> str:
    if not (item["started_at"] and item["finished_at"]):
        return UNKNOWN
    return _span((datetime.fromisoformat(item["finished_at"]) - datetime.fromisoformat(item["started_at"])).total_seconds())


def _span(seconds: float) -> str:
    minutes = round(seconds / MINUTE_S)
    if seconds < MINUTE_S:
        return f"{round(seconds)} s"
    return f"{minutes} min" if minutes < HOUR_MIN else f"{minutes // HOUR_MIN} h {minutes % HOUR_MIN:02d} min"


def _number(value: float | None, digits: int = 1) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= 1000 else f"{value:.{digits}f}"  # noqa: PLR2004 - as everywhere


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {_one_line(line)}" for line in lines)


def _markdown_table(head: Sequence[str], rows: Rows, right: set[int]) -> str:
    """Columns as wide as their words, so that it reads as plain text too."""
    cells = [[_escaped(_one_line(cell)) for cell in row] for row in (head, *rows)]
    widths = [max(3, *(len(row[place]) for row in cells)) for place in range(len(head))]

    def line(row: Sequence[str]) -> str:
        return "| " + " | ".join(_aligned(cell, widths[place], right=place in right) for place, cell in enumerate(row)) + " |"

    rule = "|" + "|".join("-" * (width + 1) + (":" if place in right else "-") for place, width in enumerate(widths)) + "|"
    return "\n".join([line(cells[0]), rule, *(line(row) for row in cells[1:])])


def _aligned(cell: str, width: int, *, right: bool) -> str:
    return cell.rjust(width) if right else cell.ljust(width)


def _one_line(text: str) -> str:
    return " ".join(str(text).split())


def _escaped(text: str) -> str:
    """A name may hold what Markdown takes for its own."""
    return _MARKS.sub(r"\\\g<0>", text)
